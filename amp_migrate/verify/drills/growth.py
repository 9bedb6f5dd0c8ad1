"""Growth: the interval made small on both sides, from a low scale, so that the scale doubles within a few steps."""

from __future__ import annotations

from itertools import pairwise

from amp_migrate.verify.drills.findings import Findings, difference, scale_of
from amp_migrate.verify.drills.plan import Planned
from amp_migrate.verify.record import Recording
from amp_migrate.verify.verdicts import scale

MISSED = "`scaler.update()` is not called at every step, or is given a scale, which switches growth off"


def compare(drill: Planned, original: Recording, migrated: Recording) -> Findings:
    """Scale and tracker step by step; and whatever the two count, a scale that grows doubles."""
    found = Findings()
    if (factor := _factor(migrated)) is not None:
        found.red(f"the scale grows by {factor:g}; Apex doubles it", "another `growth_factor=` was set")
        return found
    updated = True
    for before, after in zip(original.attempts, migrated.attempts, strict=False):
        comparable, updated = updated or drill.accumulation == 1, bool(after.updates)
        told = difference(before, after, strict=drill.accumulation == 1) if comparable else None
        if told is None:
            continue
        told = f"step {before.window}: {told}"
        if scale.scale_per_loss(original, migrated):
            found.announced.append(f"{told} ({scale.SCALE_PER_LOSS})")
        elif not drill.counts_alike:
            found.announced.append(f"{told} ({scale.GROWTH_ACCUMULATED})")
        else:
            found.red(told, MISSED, *scale.INTERVAL_CAUSES)
        break
    if not found.evidence and _grew(original) and not _grew(migrated):
        found.red("the scale grows in the original and stays in the migrated program", MISSED)
    return found


def grown(recording: Recording) -> tuple[float, float] | None:
    """The first and the last scale of a run in which it has grown."""
    scales = _scales(recording)
    return (scales[0], scales[-1]) if scales and scales[-1] > scales[0] else None


def _grew(recording: Recording) -> bool:
    return any(other > one for one, other in pairwise(_scales(recording)))


def _factor(recording: Recording) -> float | None:
    """By which the scale grew between two steps, if that is no power of two."""
    for one, other in pairwise(_scales(recording)):
        if other > one and (other / one).hex().split("p")[0] != "0x1.0000000000000":
            return other / one
    return None


def _scales(recording: Recording) -> list[float]:
    ends = [float(f["scale"]) for f in recording.final.values()]
    steps = [found for a in recording.attempts if (found := scale_of(a)) is not None]
    return steps + (ends if len(ends) == 1 else [])
