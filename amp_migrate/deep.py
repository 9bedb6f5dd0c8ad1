"""Room for deep recursion: a program nests as deeply as its author liked, and so do those who walk it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

STACK = 512 << 20  # bytes of address space; of memory only what is used
FRAMES = 40_000  # Python frames that fit on it, each with all that C puts between two of them


def with_room(work: Callable[[], T]) -> T:
    """What `work` returns or raises, called where recursion may go deep; on the spot where the system grants no room."""
    results: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    with _roomy() as granted:
        # A daemon: an interrupted run need not wait for it.
        thread = threading.Thread(target=call, daemon=True)
        try:
            if granted:
                thread.start()
        except RuntimeError:
            granted = False
        if granted:
            thread.join()
    if not granted:
        return work()
    if errors:
        raise errors[0]
    return results[0]


@contextlib.contextmanager
def _roomy() -> Iterator[bool]:
    """A large stack for threads that start here, and a limit that fits it; whether it was granted."""
    limit = sys.getrecursionlimit()
    try:
        size = threading.stack_size(STACK)
    except (ValueError, RuntimeError):
        yield False
        return
    try:
        sys.setrecursionlimit(max(limit, FRAMES))
        yield True
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(limit)
