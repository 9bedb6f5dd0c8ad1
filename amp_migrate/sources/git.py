"""What git knows of files: which commit holds them as they are, and which it keeps although `.gitignore` names them."""

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
    if _git(folder, "diff", "--quiet", "--no-ext-diff", "--no-textconv", "HEAD", "--", *names) is None:
        return None
    return _git(folder, "rev-parse", "--short", "HEAD")


def kept_although_ignored(folder: str) -> frozenset[str]:
    """The files below a repository's folder that are committed and that its ignore rules name, with the folders that they
    lie in: git follows them all the same (https://git-scm.com/docs/gitignore). Empty where git cannot tell."""
    listed = _git(folder, "ls-files", "--cached", "--ignored", "--exclude-standard", "-z")
    kept: set[str] = set()
    for name in (listed or "").split("\0"):
        path = os.path.join(folder, os.path.normpath(name)) if name else folder
        while path != folder and path not in kept:
            kept.add(path)
            path = os.path.dirname(path)
    return frozenset(kept)


def _git(folder: str, *arguments: str) -> str | None:
    """What git says; None when it fails or is not there. A repository's configuration is not to start anything by it."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", folder, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError:
        return None
    return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None  # names need not be Unicode
