"""Which drills there are, and which of them a program lets be tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

from amp_migrate.verify.case import VerifyError
from amp_migrate.verify.drills import evaluation, growth, resume, strikes, switch
from amp_migrate.verify.drills.planned import Known, Planned
from amp_migrate.verify.record import Recording
from amp_migrate.verify.recording.spec import RunSpec

ALWAYS = "overflow"  # tried however long it takes, unless drills are switched off
BUDGET = 60.0  # seconds that drills may be expected to take when nobody asked for them

NAMES: dict[str, Callable[[Known], Planned]] = {
    "overflow": strikes.overflow,
    "first-overflow": strikes.first_overflow,
    "accumulation-overflow": strikes.accumulation_overflow,
    "one-optimizer": strikes.one_optimizer,
    "nan-loss": strikes.nan_loss,
    "growth": growth.plan,
    "resume": resume.plan,
    "switch-off": switch.plan,
    "evaluation": evaluation.plan,
}


def wanted(drills: str) -> tuple[str, ...]:
    """The names in "none", "all", "auto" or a list with commas. Raises VerifyError for a name that is none."""
    if drills in ("none", ""):
        return ()
    if drills in ("all", "auto"):
        return tuple(NAMES)
    names = tuple(name.strip() for name in drills.split(","))
    for name in names:
        if name not in NAMES:
            raise VerifyError(f"there is no drill {name!r}; known are none, all, {', '.join(NAMES)}")
    return names


def plan(known: Known) -> list[Planned]:
    """Every drill that was asked for; those that cost too much, or make no sense here, say why they are not tried."""
    names = wanted(known.case.drills)
    planned = [replace(NAMES[name](known), accumulation=known.accumulation, dtype=known.case.dtype) for name in names]
    if known.case.drills != "auto":
        return planned
    seconds = sum(_seconds(known.original, spec) for drill in planned for spec in drill.specs.values())
    if seconds <= BUDGET:
        return planned
    told = f"all drills would take about {seconds / 60:.0f} min here; ask for it with --drills"
    return [p if p.name == ALWAYS or not p.specs else Planned(p.name, because=told) for p in planned]


def _seconds(original: Recording, spec: RunSpec) -> float:
    """How long a run will take, by what the free run of the original took."""
    steps = [a.seconds for a in original.attempts if a.seconds is not None]
    each = median(steps) if steps else 0.0
    before = max(0.0, (original.seconds or 0.0) - sum(steps))
    busiest = max((a.nth for a in original.attempts), default=0) + 1
    return before + min(spec.steps, busiest) * each * len(original.attempts) / busiest
