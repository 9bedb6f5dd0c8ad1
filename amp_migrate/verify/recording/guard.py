"""Nothing of the user's is written: what a run opens is looked at before it is opened (PEP 578).

Large files and folders in the copy are links into the user's folder. A link that something is about to be written
through becomes a copy first: a file is copied, a folder is replaced by a folder of links. What lies in the user's folder
is refused when it is named by its absolute path; other absolute paths are reported. Programs in other languages, which a
run starts or is linked with, open files out of sight: `verify.written` looks afterwards at what they could have changed.

Lines of `files.txt`: R (read), W (written outside the copy), then the path.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from amp_migrate.verify.recording.spec import RunSpec

FILE = "files.txt"
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Events by what they do to their arguments: "in" changes the folder that holds the path, "at" the thing itself.
EVENTS: dict[str, tuple[tuple[int, str], ...]] = {
    "os.mkdir": ((0, "in"),),
    "os.remove": ((0, "in"),),
    "os.rmdir": ((0, "in"),),
    "os.rename": ((0, "in"), (1, "in")),
    "os.link": ((1, "in"),),
    "os.symlink": ((1, "in"),),
    "os.truncate": ((0, "at"),),
    "os.chmod": ((0, "at"),),
    "os.utime": ((0, "at"),),
    "shutil.rmtree": ((0, "at"),),
    "sqlite3.connect": ((0, "at"),),
}
LISTING = ("open", "os.listdir", "os.scandir")
DIR_FD = {"os.mkdir": 2, "os.remove": 1, "os.rmdir": 1, "os.rename": 2, "os.symlink": 2, "shutil.rmtree": 1}


def told_of(file: Path) -> list[tuple[str, str]]:
    """The lines of a run's `files.txt`: R or W, and the path."""
    try:
        lines = os.fsdecode(file.read_bytes()).splitlines()
    except FileNotFoundError:
        return []
    return [(line[0], line[2:]) for line in lines if line[1:2] == " "]


class Guard:
    """Listens for one run and the processes it forks."""

    def __init__(self, spec: RunSpec) -> None:
        self.tree = None if spec.own_tree is None else os.path.abspath(spec.own_tree)
        self.origin = spec.origin
        home = os.path.dirname(os.path.abspath(spec.home))  # with the other runs' folders: a checkpoint lies in one
        # Python and libraries keep caches of their own: no data of a program.
        caches = [os.environ.get("XDG_CACHE_HOME") or "~/.cache", "~/.config/matplotlib", "~/.nv", "~/.triton"]
        caches += [os.environ[name] for name in ("TORCH_HOME", "HF_HOME", "MPLCONFIGDIR") if name in os.environ]
        caches = [*map(os.path.expanduser, caches), sys.prefix, sys.base_prefix, "/dev", "/proc"]
        self._own = tuple(os.path.realpath(place) + os.sep for place in (home, *caches))
        self._work = home
        self._said: set[str] = set()
        self._here = threading.local()  # `busy` while this thread is in here itself
        self._log = os.open(Path(spec.out) / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def install(self) -> None:
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if (event not in LISTING and event not in EVENTS) or getattr(self._here, "busy", False):
            return
        self._here.busy = True
        try:
            if event in LISTING:
                path, flags = arguments[0], arguments[2] if event == "open" else 0
                if isinstance(path, (str, bytes, os.PathLike)):
                    if flags & WRITING:
                        self.before_write(path, whole=bool(flags & os.O_TRUNC))
                    else:
                        self._say("R", os.path.abspath(os.fsdecode(path)))
                return
            for index, how in EVENTS[event]:
                path = arguments[index]
                relative = arguments[DIR_FD[event]] if event in DIR_FD and len(arguments) > DIR_FD[event] else -1
                if isinstance(path, (str, bytes, os.PathLike)) and relative in (-1, None):
                    self.before_write(path, folder=how == "in")
        finally:
            self._here.busy = False

    def before_write(self, path: str | bytes | os.PathLike[Any], *, whole: bool = False, folder: bool = False) -> None:
        """`path` is about to be written: as a `whole`, or, with `folder`, the entry of that name made or removed.

        Raises PermissionError where that would change the user's folder.
        """
        place = os.path.abspath(os.fsdecode(path))
        if folder:
            place = os.path.dirname(place)
        if self.tree is not None and (place + os.sep).startswith(self.tree + os.sep):
            self._make_own(place, whole=whole)
            return
        real = os.path.realpath(place)
        if (real + os.sep).startswith(self._own) or os.path.basename(os.path.dirname(real)) == "__pycache__":
            return
        if self.origin is not None and (real + os.sep).startswith(self.origin + os.sep):
            raise PermissionError(
                errno.EROFS,
                "lies in your project, which verify does not write; a relative path leads into the copy",
                real,
            )
        if not os.path.isdir(real):
            self._say("W", real)

    def _make_own(self, place: str, *, whole: bool) -> None:
        assert self.tree is not None
        at = self.tree
        for part in ("", *os.path.relpath(place, self.tree).split(os.sep)):
            at = os.path.normpath(os.path.join(at, part))
            if os.path.islink(at):
                there = os.path.realpath(at)
                if not (there + os.sep).startswith((os.path.realpath(self.tree) + os.sep, "/dev/", "/proc/")):
                    _replace(at, there, empty=whole and at == place)

    def _say(self, what: str, path: str) -> None:
        line = f"{what} {path}"
        if line in self._said or "\n" in path:
            return
        self._said.add(line)
        if path.startswith(self._work + os.sep):
            path = os.path.realpath(path)
            if path.startswith(os.path.realpath(self._work) + os.sep):
                return
        os.write(self._log, os.fsencode(f"{what} {path}\n"))


def _replace(link: str, there: str, *, empty: bool) -> None:
    """A copy in place of a link; a folder becomes a folder of links. Another process may be first."""
    made = f"{link}.{os.getpid()}.part"
    if os.path.isdir(there):
        os.mkdir(made)
        for entry in os.scandir(there):
            os.symlink(entry.path, os.path.join(made, entry.name))
    elif os.path.exists(there) and not empty:
        shutil.copyfile(there, made)
        shutil.copymode(there, made)
    try:
        os.unlink(link)
    except OSError:  # done by another
        shutil.rmtree(made, ignore_errors=True) if os.path.isdir(made) else None
        return
    if os.path.exists(made):
        os.rename(made, link)
