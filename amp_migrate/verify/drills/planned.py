"""What a drill needs: its runs, and what of both programs is known when they are planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from amp_migrate.verify.case import Case
from amp_migrate.verify.record import Attempt, Recording
from amp_migrate.verify.recording.spec import Drill, RunSpec, Side
from amp_migrate.verify.verdicts.scale import accumulation_of

SIDES: tuple[Side, Side] = ("original", "migrated")


@dataclass(frozen=True)
class Iteration:
    """The windows from one forward and its backward passes to the last step that follows them."""

    windows: tuple[int, ...]
    optimizers: tuple[int, ...]
    backwards: int
    scaled: tuple[int, ...]  # those of its backward passes that Apex scales, and therefore looks at

    @property
    def first(self) -> int:
        return self.windows[0]


@dataclass(frozen=True)
class Planned:
    """One drill: its runs by side, or why it is not tried. `struck` is the iteration in which something is forced,
    `optimizers` those whose gradients it reaches."""

    name: str
    specs: dict[Side, RunSpec] = field(default_factory=dict)
    because: str = ""
    struck: Iteration | None = None
    optimizers: tuple[int, ...] = ()
    accumulation: int = 1  # how many of Apex's counts make one of GradScaler's
    how: str = ""  # the arguments it runs with, as shown
    forced: bool = False  # the tool itself switches mixed precision off
    dtype: str | None = None  # the half format that was asked for
    then: Callable[[Mapping[str, Recording]], dict[str, RunSpec]] | None = None  # runs that need those of `specs`
    counts_alike: bool = True  # growth: not so where one interval stands for passes on one side, for steps on the other


@dataclass(frozen=True)
class Known:
    """What drills are planned from: the case, the free runs of both programs, where runs and captured states lie."""

    case: Case
    original: Recording
    migrated: Recording
    work: Path
    state: str

    @property
    def accumulation(self) -> int:
        """How many of Apex's counts make one of GradScaler's."""
        return accumulation_of(self.original, self.migrated)

    def spec(self, name: str, side: Side, steps: int, drill: Drill, **options: object) -> RunSpec:
        return self.case.spec(side, self.work / f"drill-{name}-{side}", steps=steps, drill=drill, **options)


def iterations(recording: Recording) -> list[Iteration]:
    """The attempts of a run, each with those that follow without a backward of their own."""
    found: list[list[Attempt]] = []
    for attempt in recording.attempts:
        if attempt.backwards or not found:
            found.append([])
        found[-1].append(attempt)
    return [
        Iteration(
            tuple(a.window for a in group),
            tuple(a.optimizer for a in group),
            len(group[0].backwards),
            tuple(n for n, b in enumerate(group[0].backwards) if b.scaler is not None),
        )
        for group in found
        if group[0].backwards
    ]


def unscaled(known: Known) -> str | None:
    """Why nothing that a loss scaler does can be tried; None where both programs scale."""
    if not any(b.scaler is not None for a in known.original.attempts for b in a.backwards):
        return "the original scales no loss"
    if not any(s["enabled"] for s in known.migrated.scalers.values()):
        return "the migrated program scales no loss"
    return None
