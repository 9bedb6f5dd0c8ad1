"""What is told while runs go on: which of how many, what it is for, about how long the rest will take."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from amp_migrate.verify.recording.spec import RunSpec

# By the name of a run's folder; a drill's is "drill NAME SIDE".
_PURPOSES = (
    (r"original", "the original program"),
    (r"migrated", "the migrated program"),
    (r"forced", "migrated, from the original's states, for lockstep"),
    (r"rounding", "original under rounding noise, for lockstep"),
    (r"rerun(\d+)", "original under rounding noise, for the loss curve"),
    (r"fp32", "migrated in fp32, for the cost"),
    (r"tool", "migrated, resumed from what the tool saved"),
    (r"converted", "migrated, resumed from the converted checkpoint"),
    (r"(original|migrated)-resumed", r"\1, resumed from its own checkpoint"),
)


class Tracker:
    """Counts runs as they are planned, begun and ended, and tells."""

    def __init__(self, tell: Callable[[str], None], parallel: int = 1) -> None:
        self._tell, self._parallel = tell, parallel
        self._planned = self._begun = self._ended = 0
        self._started: dict[str, float] = {}
        self._seconds: list[float] = []

    def expect(self, runs: int) -> None:
        """So many more runs will come."""
        self._planned += runs

    def began(self, spec: RunSpec) -> None:
        """A run was started; of several ranks the first speaks for all."""
        if spec.rank:
            return
        self._begun += 1
        self._started[str(spec.home)] = time.monotonic()
        self._planned = max(self._planned, self._begun)
        self._tell(f"run {self._begun} of {self._planned}: {purpose(spec)}{self._rest()}")

    def ended(self, spec: RunSpec) -> None:
        """A run has ended."""
        began = self._started.pop(str(spec.home), None)
        if began is not None:
            self._ended += 1
            self._seconds.append(time.monotonic() - began)

    def _rest(self) -> str:
        if not self._seconds:
            return ""
        each = sum(self._seconds) / len(self._seconds)
        left = each * (self._planned - self._ended) / self._parallel
        return f" (about {_span(left)} left)"


def purpose(spec: RunSpec) -> str:
    """What a run is for."""
    name = Path(spec.home).name
    for pattern, text in _PURPOSES:
        if found := re.fullmatch(pattern, name):
            return found.expand(text)
    words = re.sub(r"[-_ ]+", " ", name.removesuffix(spec.side)).strip()
    return f"{spec.side}, {words if words.startswith('drill') else f'drill {words}'}"


def _span(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
