"""Growth: the interval made small on both sides, from a low scale, so that the scale doubles within a few steps."""

from __future__ import annotations

from itertools import pairwise

from amp_migrate.verify.drills.findings import Findings, difference, scale_of
from amp_migrate.verify.drills.planned import SIDES, Known, Planned, unscaled
from amp_migrate.verify.record import Recording
from amp_migrate.verify.recording.spec import Drill
from amp_migrate.verify.verdicts import scale

SMALL, LOW, MOST = 2, 256.0, 24  # the smaller interval, the scale it starts from, steps at most
MISSED = "`scaler.update()` is not called at every step, or is given a scale, which switches growth off"


def plan(known: Known) -> Planned:
    """Both intervals shrunk by the same factor, the smaller one to SMALL."""
    if (because := unscaled(known)) is not None:
        return Planned("growth", because=because)
    intervals = [_interval(r) for r in (known.original, known.migrated)]
    one, other = intervals
    if one is None or other is None:
        return Planned(
            "growth", because=f"the scale of the {('original', 'migrated program')[one is not None]} is held"
        )
    unit = min(one, other) / SMALL
    small = {"original": round(one / unit), "migrated": round(other / unit)}
    steps = min(2 * max(small["migrated"], -(-small["original"] // known.accumulation)) + 2, MOST)
    specs = {
        side: known.spec("growth", side, steps, Drill(growth_interval=small[side], start_scale=LOW)) for side in SIDES
    }
    return Planned("growth", specs, counts_alike=known.accumulation == 1 or one != other)


def _interval(recording: Recording) -> int | None:
    """Of the first dynamic scaler; None when there is none, or when nobody will see it grow."""
    used = {b.scaler for a in recording.attempts for b in a.backwards} - {None}
    intervals = [int(s["growth_interval"]) for n, s in recording.scalers.items() if s["dynamic"] and n in used]
    return intervals[0] if intervals and intervals[0] < scale.NEVER else None


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
