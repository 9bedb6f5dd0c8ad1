"""What a run prints. Where it cannot be printed, what is full is named, with what the run has done all the same."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

import click


class Unprinted(OSError):
    """Standard output, or standard error, takes no more; `kept` is what the run has done all the same."""

    def __init__(self, error: OSError, *, err: bool) -> None:
        super().__init__(error.errno, error.strerror)
        self.err = err
        self.kept = ""

    def __str__(self) -> str:
        name = f"standard {'error' if self.err else 'output'}{_leading_to(2 if self.err else 1)}"
        reason = (self.strerror or "unknown reason").lower()
        kept = f"; {self.kept}" if self.kept else ""
        return f"{name} could not be written: {reason}; what stands there is not whole{kept}"


def echo(text: str = "", *, nl: bool = True, err: bool = False, color: bool | None = None) -> None:
    """Print. Raises Unprinted."""
    with stream(err=err):
        click.echo(text, nl=nl, err=err, color=color)


def emit(text: str, *, err: bool = False) -> None:
    """Print without ever failing over a character the stream cannot show."""
    to = sys.stderr if err else sys.stdout
    if to is None:  # closed by whoever started us
        return
    encoding = to.encoding or "utf-8"
    echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False, err=err, color=True)


@contextlib.contextmanager
def stream(*, err: bool = False) -> Iterator[None]:
    """An error inside is one of the stream."""
    try:
        yield
    except OSError as error:
        raise Unprinted(error, err=err) from error


@contextlib.contextmanager
def saying(kept: str) -> Iterator[None]:
    """What cannot be printed inside is told with what was `kept`."""
    try:
        yield
    except Unprinted as error:
        error.kept = kept
        raise


def told(error: OSError) -> str:
    """An error that nobody dealt with, on one line; a full disk below no file that was named is one of what click prints."""
    if error.errno == errno.ENOSPC and error.filename is None and not isinstance(error, Unprinted):
        error = Unprinted(error, err=False)
    return one_line(error)


def one_line(error: Exception) -> str:
    """An error on one line that any terminal can show."""
    return " ".join(str(error).split()).encode("ascii", "backslashreplace").decode()


def silence() -> None:
    """What is still buffered would be tried once more as Python ends, and end it with a code of its own."""
    for each in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError), open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), each.fileno())


def _leading_to(descriptor: int) -> str:
    """The file behind a stream, where the system tells it."""
    with contextlib.suppress(OSError):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith("/"):
            return f" ({path})"
    return ""
