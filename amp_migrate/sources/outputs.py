"""Where reports go: looked at before any work, and never over what is no report of ours."""

from __future__ import annotations

import contextlib
import os
import stat

from amp_migrate.sources.discover import PYTHON_SUFFIXES, SETTINGS_SUFFIXES

MARK = "amp-migrate: report"  # near the beginning of every report that is written to a file
_HEAD = 4096  # bytes in which the mark stands


def problem(path: str | os.PathLike[str]) -> str | None:
    """Why a report cannot be written to `path`; None where it can. An earlier report there is replaced."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.basename(path):
        return "names no file"
    try:
        info = os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            return "is a symbolic link to nothing"
        if not os.path.isdir(folder):
            return "stands in a folder that does not exist"
        return None if os.access(folder, os.W_OK | os.X_OK) else "stands in a folder that cannot be written"
    except OSError as error:
        return f"cannot be written: {(error.strerror or str(error)).lower()}"
    if stat.S_ISDIR(info.st_mode):
        return "is a folder"
    if not stat.S_ISREG(info.st_mode):
        return None  # a pipe, a terminal
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        return f"cannot be read: {(error.strerror or str(error)).lower()}"
    # A program that is empty (`__init__.py`), or speaks of our reports, is a program all the same.
    if os.fspath(path).endswith((*PYTHON_SUFFIXES, *SETTINGS_SUFFIXES)) or (head and not is_report(head)):
        return "is there already and is no report of amp-migrate"
    return None if os.access(path, os.W_OK) else "cannot be written"


def is_report(data: bytes) -> bool:
    """Whether these are the bytes of a report that amp-migrate wrote."""
    return MARK.encode() in data[:_HEAD]


def write(path: str | os.PathLike[str], text: str) -> str | None:
    """Write a report; why it could not be written, or None: then what was there is there again, or nothing. What UTF-8
    does not have is escaped."""
    earlier = None
    try:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                earlier = file.read()
        _put(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        with contextlib.suppress(OSError):
            if earlier is not None:
                _put(path, earlier)
            elif os.path.isfile(path):
                os.unlink(path)
        return (error.strerror or str(error)).lower()
    return None


def _put(path: str | os.PathLike[str], data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
