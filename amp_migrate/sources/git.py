"""What git knows of files: which commit holds them as they are, and which it keeps although `.gitignore` names them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from amp_migrate.sources.failures import SourceError
from amp_migrate.sources.files import read_bytes


def holding(paths: Sequence[str]) -> str | None:
    """The short name of the commit checked out, when it holds every one of `paths` as it is on disk; else None."""
    names = [os.path.realpath(path) for path in paths]
    if not names:
        return None
    folder = os.path.commonpath([os.path.dirname(name) for name in names])
    listed = _git(folder, "ls-files", "--stage", "-z", "--error-unmatch", "--", *names)
    if listed is None:
        return None  # no repository, or a file it does not know
    # Git itself compares with what is on disk only through the filters that the repository's configuration names.
    for entry in filter(None, listed.split("\0")):
        about, _, name = entry.partition("\t")
        _, known, stage = about.split(" ")
        if stage != "0" or not _is_blob(known, os.path.join(folder, name)):
            return None
    if _git(folder, "diff-index", "--cached", "--quiet", "HEAD", "--", *names) is None:
        return None
    return _git(folder, "rev-parse", "--short", "HEAD")


def _is_blob(known: str, path: str) -> bool:
    """Whether a file on disk is what git keeps under an id, but for carriage returns that a checkout may have added."""
    import hashlib

    try:
        data = read_bytes(path)
    except (OSError, SourceError):
        return False
    kind = "sha1" if len(known) == 40 else "sha256"
    texts = (data, data.replace(b"\r\n", b"\n"))
    return any(hashlib.new(kind, b"blob %d\0" % len(t) + t, usedforsecurity=False).hexdigest() == known for t in texts)


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
    import subprocess

    command = ["git", "-c", "core.fsmonitor=false", "-C", folder, *arguments]
    try:
        # Nor is what a partial clone left out fetched: by whom, the repository says.
        done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "GIT_NO_LAZY_FETCH": "1"})
    except OSError:
        return None
    return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None  # names need not be Unicode
