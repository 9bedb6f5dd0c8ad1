"""A line on the terminal that says what is going on, and for how long already; nothing anywhere else."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator

from amp_migrate.cli.printing import emit
from amp_migrate.cli.settings import Settings
from amp_migrate.sources.project import Progress

_EVERY = 1.0  # seconds


@contextlib.contextmanager
def progress(settings: Settings, *, ticking: bool = False) -> Iterator[Progress]:
    """The line, gone when it is done. `ticking`: it counts the seconds of a step that takes some; not where processes are
    forked meanwhile, since a thread does it."""
    if settings.quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    line = _Line(settings.within)
    done = threading.Event()
    clock = threading.Thread(target=line.tick, args=(done,), daemon=True, name="progress")
    if ticking:
        clock.start()
    try:
        yield line.tell
    finally:
        done.set()
        if ticking:
            clock.join(_EVERY)
        line.clear()


class _Line:
    def __init__(self, within: str) -> None:
        self._within = within
        self._text: str | None = None
        self._since = 0.0
        self._lock = threading.Lock()

    def tell(self, text: str) -> None:
        with self._lock:
            self._text, self._since = text, time.monotonic()
            self._paint("")

    def tick(self, done: threading.Event) -> None:
        """Paint the line anew each second."""
        with contextlib.suppress(OSError):  # the terminal is gone
            while not done.wait(_EVERY):
                with self._lock:
                    if self._text is not None:
                        self._paint(f", {time.monotonic() - self._since:.0f} s")

    def clear(self) -> None:
        with self._lock:
            self._text = None
            emit("\r\x1b[K", err=True)

    def _paint(self, seconds: str) -> None:
        room = shutil.get_terminal_size().columns - len(seconds) - 2  # a line that wraps is not overwritten
        text = f"{self._within}{self._text}"[: max(room, 20)]
        emit(f"\r\x1b[K{text}{seconds}…", err=True)
