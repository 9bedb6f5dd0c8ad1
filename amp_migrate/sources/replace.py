"""Writing results: each file replaced atomically, the files of a migration unit all or none."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from amp_migrate.sources.failures import NOT_WRITTEN, SourceError
from amp_migrate.sources.files import SourceFile, read_bytes


@dataclass(frozen=True)
class Change:
    """A file and the text it becomes: of a notebook, the JSON."""

    source: SourceFile
    after: str


def replace_together(changes: Sequence[Change]) -> None:
    """Write all of these files or none; raises SourceError naming the file that stood in the way.

    Every new content lies complete on the disk, beside its file, before the first file is replaced; a reader sees
    the old or the new bytes at any moment. When a later replacement fails, the earlier ones are put back.
    """
    replaced: list[tuple[Path, bytes]] = []
    with contextlib.ExitStack() as staged:
        ready = []
        for change in changes:
            with _named(change.source):
                target = Path(os.path.realpath(change.source.path))
                before = change.source.encode(change.source.text)
                _refuse_changed(target, before)
                ready.append((change.source, target, before, staged.enter_context(_staged(target, _encoded(change)))))
        try:
            for source, target, before, temporary in ready:
                with _named(source):
                    _refuse_changed(target, before)
                    # Listed first: whether an interrupted replacement happened cannot be known.
                    replaced.append((target, before))
                    os.replace(temporary, target)
        except BaseException:
            for target, before in reversed(replaced):
                with contextlib.suppress(OSError), _staged(target, before) as temporary:
                    os.replace(temporary, target)
            raise
    for folder in {target.parent for target, _ in replaced}:
        _sync_folder(folder)


def _encoded(change: Change) -> bytes:
    try:
        return change.source.encode_file(change.after)
    except UnicodeEncodeError as error:
        raise SourceError(NOT_WRITTEN, f"the result cannot be encoded as {error.encoding}") from None


def _refuse_changed(target: Path, before: bytes) -> None:
    if read_bytes(target) != before:
        raise SourceError(NOT_WRITTEN, "was changed by another program while it was being migrated; left alone")


@contextlib.contextmanager
def _named(source: SourceFile) -> Iterator[None]:
    """Errors inside say which file they are about."""
    try:
        yield
    except OSError as error:
        message = f"cannot be written: {(error.strerror or str(error)).lower()}"
        raise WriteError(source.display, SourceError(NOT_WRITTEN, message)) from error
    except SourceError as error:
        raise WriteError(source.display, error) from error


class WriteError(Exception):
    """The file that could not be written, and why; nothing of its unit was."""

    def __init__(self, display: str, error: SourceError) -> None:
        super().__init__(f"{display}: {error.message}")
        self.display = display
        self.error = error


@contextlib.contextmanager
def _staged(target: Path, content: bytes) -> Iterator[str]:
    """A temporary file beside `target` with its mode and, as far as we may, its owner; gone afterwards."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".amp-migrate.tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            info = os.stat(target)
            if hasattr(os, "fchown") and (info.st_uid, info.st_gid) != (os.geteuid(), os.getegid()):
                with contextlib.suppress(OSError):
                    os.fchown(file.fileno(), info.st_uid, info.st_gid)
            os.chmod(name, stat.S_IMODE(info.st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield name
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def _sync_folder(folder: Path) -> None:
    """Make the renames durable where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
