"""When, with what, and on which commit a verdict was reached."""

from __future__ import annotations

import subprocess
from datetime import datetime, timezone
from pathlib import Path

from amp_migrate import __version__


def about(folder: Path, revision: str | None = None) -> dict[str, str]:
    """Date (UTC, to the minute), version of this tool, and the commit of the project in `folder` if git knows one;
    `revision` is what the original was taken from."""
    told = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "amp-migrate": __version__,
    }
    commit = _git(folder, "rev-parse", "--short", "HEAD")
    if commit:
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
        told["commit"] = commit + (", with changes that are not committed" if changed else "")
    if commit and revision is not None:
        told["original"] = f"{revision} ({_git(folder, 'rev-parse', '--short', revision)})"
    return told


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except OSError:
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
