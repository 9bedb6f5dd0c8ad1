"""The commit that holds files as they are: what a migration started from, for whoever wants to compare later."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence


def holding(paths: Sequence[str]) -> str | None:
    """The short name of the commit checked out, when it holds every one of `paths` as it is on disk; else None."""
    folders = {os.path.dirname(os.path.abspath(path)) for path in paths}
    names = [os.path.abspath(path) for path in paths]
    if not folders:
        return None
    folder = os.path.commonpath(folders)
    if _git(folder, "ls-files", "--error-unmatch", "--", *names) is None:
        return None  # no repository, or a file it does not know
    if _git(folder, "diff", "--quiet", "HEAD", "--", *names) is None:
        return None
    return _git(folder, "rev-parse", "--short", "HEAD")


def _git(folder: str, *arguments: str) -> str | None:
    """What git says; None when it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, check=False)
    except OSError:
        return None
    return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None  # names need not be Unicode
