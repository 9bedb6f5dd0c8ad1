"""Of more ways than are looked at, some of each call that they end with: the first call alone may have as many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def in_turn(each: Sequence[Sequence[T]], most: int) -> list[T]:
    """At most so many of some lists, in their order: all if there are no more, else one of each in turn."""
    by_turn = sorted((turn, at) for at, ways in enumerate(each) for turn in range(len(ways)))
    chosen = {(at, turn) for turn, at in by_turn[:most]}
    return [way for at, ways in enumerate(each) for turn, way in enumerate(ways) if (at, turn) in chosen]
