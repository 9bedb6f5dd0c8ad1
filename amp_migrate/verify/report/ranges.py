"""Axes on which a constant looks constant."""

from __future__ import annotations

import math
from collections.abc import Iterable

LEAST = 0.05  # of the size of the numbers: what an axis spans at least


def calm(values: Iterable[float]) -> tuple[float, float] | None:
    """The lowest and highest finite value, moved apart until they span LEAST of their size. None without any."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return None
    low, high = min(finite), max(finite)
    least = LEAST * max(abs(low), abs(high)) or 1.0
    if high - low < least:
        middle = (low + high) / 2
        low, high = middle - least / 2, middle + least / 2
    return low, high
