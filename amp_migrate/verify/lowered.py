"""The original overflows where the migrated program does not: a fault, or the range of float16?

Apex O2 keeps weights, gradients and losses in half, and what O1 did not patch stays half, where autocast computes in
fp32. A gradient above 65504, or the gradient of a half loss under the first scale (65536), is infinite in one and finite
in the other, though both are right: Apex skips a step that the migrated program takes, and halves its scale. Whether
that is all is measured: both programs start once more from the scale at which the original has arrived. If the overflow
has gone, and the migrated program finds the same gradient there as before, the two lowered runs take the same steps, and
everything is judged by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from amp_migrate.verify import roundtrip
from amp_migrate.verify.case import Case, captures
from amp_migrate.verify.record import Attempt, Recording
from amp_migrate.verify.recording.spec import RunSpec, Side
from amp_migrate.verify.thresholds import SAME_NORM
from amp_migrate.verify.verdicts import known, scale
from amp_migrate.verify.verdicts.verdict import Verdict, merge

TRIES = 2  # from the lower scale training takes another way, on which the original may overflow again
Ranks = list[Recording]
Run = Callable[[list[RunSpec]], list[Ranks]]


@dataclass(frozen=True)
class Lowered:
    """Runs of both programs from a scale at which neither parts from the other; `case` asks for it, `work` holds them.
    `step` is where the free runs part."""

    case: Case
    work: Path
    originals: Ranks
    migrateds: Ranks
    step: int

    @property
    def start(self) -> float:
        """The scale they start from."""
        assert self.case.start_scale is not None
        return self.case.start_scale

    @property
    def note(self) -> str:
        return (
            f"the original overflows at step {self.step}, where float16 ends, and the migrated program does not: all but "
            f"the scale is judged by runs of both that start at scale {self.start:g}"
        )


def first_runs(case: Case, work: Path) -> list[RunSpec]:
    """Both programs, free, with what later runs start from."""
    places = roundtrip.places(case)
    at: dict[Side, tuple[int, ...]] = {"original": tuple(sorted({*captures(case.steps), *places})), "migrated": places}
    return [
        case.spec(side, work / side, captures=steps, keep_save_near=case.middle, keep_tree=True)
        for side, steps in at.items()
    ]


def lower(case: Case, work: Path, originals: Ranks, migrateds: Ranks, run: Run) -> Lowered | None:
    """Both from a lower scale, if the original overflowed for want of range. None where they do not part like that, and
    where a lower scale shows that range is not what parts them."""
    step = parts_at(originals, migrateds)
    if step is None or case.dtype == "bfloat16":
        return None
    seen = originals
    for attempt in range(TRIES):
        lowest = min(map(_lowest, seen))
        again = replace(case, start_scale=lowest)
        folder = work / f"lowered{attempt or ''}"
        before, after = run(first_runs(again, folder))
        if any(r.trouble is not None for r in (*before, *after)):
            return None
        if not _same_gradient(step, migrateds, before, after):
            return None
        if parts_at(before, after) is None:
            return Lowered(again, folder, before, after, step)
        seen = before
    return None


def parts_at(originals: Ranks, migrateds: Ranks) -> int | None:
    """The first step on which the two do not agree about an overflow, if only the original skips it and the migrated one
    takes a finite step at the same scale."""
    found = [_parts_at(one, other) for one, other in zip(originals, migrateds, strict=True)]
    steps = [step for step in found if step is not None]
    return min(steps) if steps else None


def _parts_at(original: Recording, migrated: Recording) -> int | None:
    if not any(s["dynamic"] for s in original.scalers.values()):
        return None
    late = {a.window for a in known.late(original)}
    for before, after in zip(original.attempts, migrated.attempts, strict=False):
        if before.optimizer != after.optimizer or _scale(before) != _scale(after):
            return None
        if before.skipped != after.skipped:
            legal = before.skipped and before.window not in late and _finite(after)
            return before.window if legal else None
    return None


def _same_gradient(step: int, migrateds: Ranks, before: Ranks, after: Ranks) -> bool:
    """Whether the step that Apex skipped was a good one: with the lower scale Apex takes it, and the migrated program
    finds the gradient that it found with the higher one."""
    for free, original, migrated in zip(migrateds, before, after, strict=True):
        if step >= min(len(original.attempts), len(migrated.attempts), len(free.attempts)):
            return False
        if original.attempts[step].skipped:
            return False
        one, other = free.attempts[step].grad_norm, migrated.attempts[step].grad_norm
        if one is None or other is None or not abs(one - other) <= SAME_NORM * abs(other):
            return False
    return True


def _scale(attempt: Attempt) -> float | None:
    """Under accumulation the first: Apex halves at the backward pass that overflows, GradScaler after the step."""
    return attempt.backwards[0].scale if attempt.backwards else None


def _finite(attempt: Attempt) -> bool:
    numbers = [attempt.grad_norm, *(b.loss for b in attempt.backwards)]
    return all(number is not None and math.isfinite(number) for number in numbers)


def _lowest(original: Recording) -> float:
    """The scale at which it has arrived after its overflows."""
    ends = [float(f["scale"]) for f in original.final.values() if f["config"]["dynamic"]]
    scales = [b.scale for a in original.attempts for b in a.backwards if b.scaler is not None]
    return min([*scales, *ends], default=math.inf)


def judge_scale(judged: Verdict, originals: Ranks, migrateds: Ranks, found: Lowered) -> Verdict:
    """The verdict on the scale of the free runs, up to where range parts them, and on that of the lowered ones."""
    free = merge([scale.judge(one, other, ends_at=found.step) for one, other in zip(originals, migrateds, strict=True)])
    if free.status == "disagrees" or judged.status != "disagrees":
        free.announced += [a for a in judged.announced if a not in free.announced]
        return free
    judged.announced = list(dict.fromkeys([*free.announced, *judged.announced]))
    return judged
