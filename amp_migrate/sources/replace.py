"""Writing results: each file replaced atomically, the files of a migration unit all or none."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from amp_migrate.sources import journal
from amp_migrate.sources.failures import NOT_WRITTEN, SourceError
from amp_migrate.sources.files import SourceFile, read_bytes
from amp_migrate.sources.journal import Journal


@dataclass(frozen=True)
class Change:
    """A file and the text it becomes: of a notebook, the JSON."""

    source: SourceFile
    after: str


def replace_together(changes: Sequence[Change], stop_if_asked: Callable[[], None] = lambda: None) -> None:
    """Write all of these files or none; raises WriteError naming the file that stood in the way.

    Every new content lies complete on the disk, beside its file, before the first file is replaced; a reader sees
    the old or the new bytes at any moment. When a later replacement fails, the earlier ones are put back.
    `stop_if_asked`: called after each file, and raises where the run is to end.
    """
    replaced: list[tuple[Path, bytes]] = []
    targets = [Path(os.path.realpath(change.source.path)) for change in changes]
    with journal.opened(targets) as log, contextlib.ExitStack() as staged:
        ready = []
        for change, target in zip(changes, targets, strict=True):
            with _named(change.source):
                before, after = change.source.encode(change.source.written), _encoded(change)
                _refuse_changed(target, before)
                _refuse_protected(target)
                temporary = staged.enter_context(_staged(target, after, log))
                log.staged(target, temporary, before, after)
                ready.append((change.source, target, before, temporary))
            stop_if_asked()
        for change in changes[:1]:
            with _named(change.source):
                log.complete()
        try:
            for source, target, before, temporary in ready:
                with _named(source):
                    _refuse_changed(target, before)
                    # Listed first: whether an interrupted replacement happened cannot be known.
                    replaced.append((target, before))
                    os.replace(temporary, target)
                stop_if_asked()
        except BaseException:
            for target, before in reversed(replaced):
                with contextlib.suppress(OSError), _staged(target, before, log) as temporary:
                    os.replace(temporary, target)
            raise
    for folder in {target.parent for target, _ in replaced}:
        _sync_folder(folder)


def other_names(path: Path) -> int:
    """How many names a file has beside this one (hard links). They keep the text from before when it is replaced."""
    try:
        return max(0, os.stat(path).st_nlink - 1)
    except OSError:
        return 0


def is_read_only(path: Path) -> bool:
    """Renaming needs no permission to write the file: one that its owner made read-only is left alone all the same."""
    mode = os.stat(path).st_mode
    return not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(path, os.W_OK)


def _encoded(change: Change) -> bytes:
    try:
        return change.source.encode_file(change.after)
    except UnicodeEncodeError as error:
        raise SourceError(NOT_WRITTEN, f"the result cannot be encoded as {error.encoding}") from None


def _refuse_changed(target: Path, before: bytes) -> None:
    if read_bytes(target) != before:
        raise SourceError(NOT_WRITTEN, "was changed by another program while it was being migrated; left alone")


def _refuse_protected(target: Path) -> None:
    if is_read_only(target):
        raise SourceError(NOT_WRITTEN, "cannot be written: it is read-only")


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
def _staged(target: Path, content: bytes, log: Journal) -> Iterator[str]:
    """A temporary file beside `target` with its mode and, as far as we may, its owner; gone afterwards."""
    name = str(target.with_name(journal.temporary_name(target.name, log.id, log.suffix)))
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | journal.BINARY, 0o600)
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
