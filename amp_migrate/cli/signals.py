"""Being asked to stop: whatever was begun is undone or put in order, then the process ends as the signal would end it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

_ASKING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """A polite kill, a closed terminal and Ctrl-C unwind the stack once; asked again, the process is still at it.

    Signals that the caller ignores (`nohup`) stay ignored.
    """
    before = {number: signal.getsignal(number) for number in _ASKING}
    heard = {number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}

    def stop(number: int, frame: object) -> None:
        for other in heard:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    try:
        for number in heard:
            signal.signal(number, stop)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
