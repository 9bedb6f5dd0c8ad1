"""Being asked to stop: whatever was begun is undone or put in order, then the process ends as the signal would end it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

_ASKING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextlib.contextmanager
def unwinding(*, patient: bool = False) -> Iterator[Callable[[], None]]:
    """A polite kill, a closed terminal and Ctrl-C unwind the stack once; asked again, the process is still at it.

    `patient`: it unwinds where what is yielded is called, and at the end, so that no step is left out of what puts
    things in order. Signals that the caller ignores (`nohup`) stay ignored.
    """
    before = {number: signal.getsignal(number) for number in _ASKING}
    heard = {number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    asked: list[int] = []

    def stop(number: int, frame: object) -> None:
        for other in heard:
            signal.signal(other, signal.SIG_IGN)
        asked.append(number)
        if not patient:
            answer()

    def answer() -> None:
        if asked:
            number = asked.pop()
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    try:
        for number in heard:
            signal.signal(number, stop)
    except ValueError:  # not in the main thread
        yield answer
        return
    try:
        yield answer
    finally:
        for number in heard:
            signal.signal(number, before[number])
    answer()
