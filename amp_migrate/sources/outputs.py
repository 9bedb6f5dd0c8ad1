"""Where reports go: looked at before any work, and never over what is no report of ours."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path

from amp_migrate.sources import beside
from amp_migrate.sources.discover import PYTHON_SUFFIXES, SETTINGS_SUFFIXES

MARK = "amp-migrate: report"  # near the beginning of every report that is written to a file
_HEAD = 4096  # bytes in which the mark stands
# Nothing that is written elsewhere on the disk, or in place, would fare better.
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC)}


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
    # A program that is empty (`__init__.py`), or speaks of our reports, is a program all the same.
    program = os.fspath(path).endswith((*PYTHON_SUFFIXES, *SETTINGS_SUFFIXES))
    if not program and _own_stream(path) is not None:
        return None  # it is added to what is printed
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        return f"cannot be read: {(error.strerror or str(error)).lower()}"
    if program or (head and not is_report(head)):
        return "is there already and is no report of amp-migrate"
    return None if os.access(path, os.W_OK) else "cannot be written"


def is_report(data: bytes) -> bool:
    """Whether these are the bytes of a report that amp-migrate wrote."""
    return MARK.encode() in data[:_HEAD]


def write(path: str | os.PathLike[str], text: str) -> str | None:
    """Write a report; why it could not be written, or None: then what was there is there still, or nothing. What UTF-8
    does not have is escaped."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        own = _own_stream(path)
        if own is not None:  # a file in its place would take from us what is printed there
            sys.stdout.flush()
            _put(own, data)
        elif os.path.exists(path) and not os.path.isfile(path):  # a pipe, a terminal
            _put(path, data)
        else:
            _replace(path, data)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


def _own_stream(path: str | os.PathLike[str]) -> int | None:
    """The descriptor of our own output that a path leads to, as /dev/stdout does."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
    return None


def _replace(path: str | os.PathLike[str], data: bytes) -> None:
    try:
        with beside.replacing(Path(path)) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        if error.errno in _FULL or not os.path.isfile(path):
            raise
        _put_in_place(path, data)


def _put_in_place(path: str | os.PathLike[str], data: bytes) -> None:
    """Where its folder takes no new file, or the file cannot be moved over (mounted by itself)."""
    with open(path, "rb") as file:
        earlier = file.read()
    try:
        _put(path, data)
    except OSError:
        with contextlib.suppress(OSError):
            _put(path, earlier)
        raise


def _put(path: str | os.PathLike[str] | int, data: bytes) -> None:
    with open(path, "wb", closefd=not isinstance(path, int)) as file:
        file.write(data)
