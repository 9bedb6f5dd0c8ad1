"""What a run is about to replace, written down first: a later run finishes what a kill left half done.

The journal lies in the folder that all files of a unit are below, and is locked while its run lives. It is complete once
every new text lies complete beside its file; the first file is replaced after that.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SUFFIX = ".amp-migrate.tmp"
BINARY = getattr(os, "O_BINARY", 0)  # Windows changes line ends otherwise
# One that a project brings along may be a link or a pipe: neither is followed, nor waited for.
_ONLY_A_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_LONGEST = 255
_NUMBER = re.compile(r"[0-9a-f]{12}")
_PREFIX, _ENDING = ".amp-migrate.", ".journal"


def temporary_name(target: str, number: str, suffix: str = SUFFIX) -> str:
    """The name of what lies ready beside a file, cut where no name may be as long (255 bytes, on most systems)."""
    while len(os.fsencode(name := f".{target}.{number}{suffix}")) > _LONGEST and target:
        target = target[:-1]
    return name


def is_temporary(name: str, target: str, suffix: str = SUFFIX) -> bool:
    """Whether a file beside another is what some run made ready for it, by its name."""
    number = _number(name, suffix)
    return _NUMBER.fullmatch(number) is not None and name == temporary_name(target, number, suffix)


def _number(temporary: str, suffix: str = SUFFIX) -> str:
    return temporary.removesuffix(suffix).rpartition(".")[2]


def is_journal(name: str) -> bool:
    """Whether a file in a folder is a journal, by its name."""
    return name.startswith(_PREFIX) and name.endswith(_ENDING)


def digest(data: bytes) -> str:
    """What tells contents apart."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


@dataclass
class Journal:
    """The journal of one unit while it is written. `id` is in the names of its temporary files."""

    id: str
    suffix: str
    _path: Path | None = None
    _descriptor: int = -1
    _files: list[dict[str, str]] = field(default_factory=list)

    def staged(self, target: Path, temporary: str, before: bytes, after: bytes) -> None:
        """Note a new text that lies ready."""
        if self._path is not None:
            entry = {"target": os.path.relpath(target, self._path.parent), "temporary": os.path.basename(temporary)}
            self._files.append(entry | {"before": digest(before), "after": digest(after)})

    def complete(self) -> None:
        """From here on files are replaced. Raises OSError."""
        import json

        if self._path is None:
            return
        data = json.dumps({"version": 1, "files": self._files}).encode()
        while data:  # of a disk that is nearly full, the first write takes what fits
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)


@contextlib.contextmanager
def opened(targets: Sequence[Path]) -> Iterator[Journal]:
    """A journal for files that are replaced together; gone when they are, or are as they were."""
    name = os.urandom(6).hex()
    try:
        path = Path(os.path.commonpath([target.parent for target in targets])) / f"{_PREFIX}{name}{_ENDING}"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | BINARY, 0o600)
    except (OSError, ValueError):  # a folder that cannot be written, or several drives: nothing to go by after a kill
        yield Journal(name, ".amp-migrate.new")
        return
    try:
        lock(descriptor)
        yield Journal(name, SUFFIX, path, descriptor)
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(path)


def lock(descriptor: int) -> bool:
    """Whether the lock of a file was free; it is held until the descriptor is closed."""
    try:
        import fcntl
    except ImportError:
        return True  # Windows: see `_in_use`
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _in_use(path: str) -> bool:
    """Whether a process has a file open, where the system then refuses to rename it."""
    try:
        os.rename(path, f"{path}.x")
        os.rename(f"{path}.x", path)
    except OSError:
        return True
    return False


@dataclass(frozen=True)
class Pending:
    """One file of an interrupted unit: whether it was replaced, and the text that waits if it was not."""

    target: Path
    temporary: Path
    done: bool
    waiting: bool  # the file is as it was, and its new text lies complete beside it


@dataclass(frozen=True)
class Left:
    """What a killed run left: its journal and the files in it, none where nothing had been replaced yet."""

    path: Path
    files: tuple[Pending, ...]

    @property
    def half(self) -> bool:
        """Whether some files are replaced and others are not."""
        return len({file.done for file in self.files}) > 1

    @property
    def finishable(self) -> bool:
        return all(file.done or file.waiting for file in self.files)

    def finish(self) -> None:
        """Replace what was not replaced. Raises OSError."""
        for file in self.files:
            if not file.done:
                os.replace(file.temporary, file.target)

    def clean(self) -> None:
        """Remove what is left of the run beside the files themselves."""
        for file in self.files:
            with contextlib.suppress(OSError):
                os.unlink(file.temporary)
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def abandoned(paths: Iterable[str]) -> Iterator[Left]:
    """The journals among these whose run no longer lives, with what they say of their files."""
    for path in sorted(set(paths)):
        try:
            if os.name == "nt" and _in_use(path):
                continue
            descriptor = os.open(path, os.O_RDWR | _ONLY_A_FILE | BINARY)
        except OSError:
            continue
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode) and lock(descriptor):
                yield Left(Path(path), tuple(_entries(Path(path), os.read(descriptor, 1 << 24))))
        finally:
            os.close(descriptor)


def owner(temporary: str) -> str | None:
    """The journal that a temporary file belongs to, looked for in all folders above it; None where there is none."""
    name = _number(os.path.basename(temporary))
    for folder in Path(os.path.abspath(temporary)).parents:
        path = folder / f"{_PREFIX}{name}{_ENDING}"
        if path.exists():
            return str(path)
    return None


def _entries(path: Path, data: bytes) -> Iterator[Pending]:
    folder = Path(os.path.realpath(path.parent))
    name = path.name.removeprefix(_PREFIX).removesuffix(_ENDING)
    for entry in _read(data):
        try:
            target = Path(os.path.realpath(folder / entry["target"]))
            temporary = target.with_name(entry["temporary"])
        except ValueError:  # no file can have that name
            continue
        # A journal is a file like any other: it names nothing outside of its folder.
        if folder not in target.parents or temporary.name != temporary_name(target.name, name):
            continue
        here, there = _content(target), _content(temporary)
        after = entry["after"]
        yield Pending(target, temporary, here == after, here == entry["before"] and there == after)


def _read(data: bytes) -> list[dict[str, str]]:
    import json

    try:
        files: Any = json.loads(data)["files"]
        keys = ("target", "temporary", "before", "after")
        return [{key: str(entry[key]) for key in keys} for entry in files]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []  # killed before it was complete: nothing was replaced


def _content(path: Path) -> str | None:
    from amp_migrate.sources.failures import SourceError
    from amp_migrate.sources.files import read_bytes

    try:
        return digest(read_bytes(path)) if not path.is_symlink() else None
    except (OSError, SourceError, ValueError):
        return None
