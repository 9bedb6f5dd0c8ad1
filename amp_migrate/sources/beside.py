"""One file written beside its place and moved there: a reader, and a kill at any moment, find the old one or the new."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from amp_migrate.sources import journal

_PART = ".part"


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new neighbour of `target` that takes its place and its mode when the block succeeds, and vanishes when not. One that a
    killed run left goes first. Raises OSError."""
    real = Path(os.path.realpath(target))  # a link stays one
    _clean(real)
    temporary = real.with_name(journal.temporary_name(real.name, os.urandom(6).hex(), _PART))
    try:
        with _held(temporary):
            yield temporary
            temporary.chmod(_mode(real))
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
            temporary.replace(real)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _mode(target: Path) -> int:
    """The mode of what is replaced, else that of any new file."""
    with contextlib.suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


@contextmanager
def _held(temporary: Path) -> Iterator[None]:
    """The file, new and locked for as long as this process lives; Windows, which moves no open file, does without."""
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    if os.name == "nt":
        os.close(descriptor)
        yield
        return
    try:
        journal.lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _clean(target: Path) -> None:
    """Remove what runs left beside `target` that were killed while they wrote it."""
    with contextlib.suppress(OSError):
        left = [name for name in os.listdir(target.parent) if journal.is_temporary(name, target.name, _PART)]
        for path in map(target.with_name, left):
            descriptor = os.open(path, os.O_RDWR)
            try:
                if journal.lock(descriptor):
                    path.unlink()
            finally:
                os.close(descriptor)
