"""Infinite gradients, or a loss that is nan, in one iteration: which steps are skipped, and what follows.

Under a dynamic scale Apex skips the step of every optimizer that `scale_loss` was given, and halves the scale once.
GradScaler skips the optimizers whose own gradients are not finite, and halves the scale at `update`. From equal states
nothing else may differ: not the steps taken, the scale, the learning rates, nor the gradients of the next step.
"""

from __future__ import annotations

import math

from amp_migrate.verify.drills.findings import Findings, difference, scale_of
from amp_migrate.verify.drills.planned import Planned
from amp_migrate.verify.record import Attempt, Recording
from amp_migrate.verify.verdicts import known, lockstep, scale
from amp_migrate.verify.verdicts.lockstep import Distance, StepComparison

STATIC = "a static Apex scale never skips a step, and what is not finite reaches the weights; GradScaler skips"
ALL_SKIP = (
    "an overflow makes Apex skip the step of every optimizer given to `scale_loss`; GradScaler skips only the one whose "
    "gradients are not finite"
)
LATE = (
    "the original leaves the iteration before `optimizer.step()`, so Apex skips the next step, a good one, instead; "
    "GradScaler does not"
)
KEPT = "gradients that are not finite are still there: `zero_grad` must run after a skipped step as well"
NOT_HALVED = "`scaler.update()` is missing on the way of an overflow, or another `backoff_factor=` was set"


def compare(drill: Planned, original: Recording, migrated: Recording, noise: Distance | None) -> Findings:
    """`noise` is how far rounding alone puts the gradients of the original from themselves; None where gradients differ
    without a drill."""
    assert drill.struck is not None
    found = Findings()
    dynamic = any(s["dynamic"] for s in original.scalers.values())
    left = {a.window for a in known.late(original)}
    pairs = list(zip(original.attempts, migrated.attempts, strict=False))
    for before, after in pairs:
        if before.optimizer != after.optimizer:
            found.red(
                f"step {before.window}: optimizer {before.optimizer} steps in the original, {after.optimizer} in the "
                "migrated program",
                "a step is left out, or made, on one side only after an overflow",
            )
            return found
    for before, after in pairs:
        if before.window in drill.struck.windows:
            _struck(drill, before, after, dynamic, found, late=before.window in left)
    if not found.evidence:
        _afterwards(drill, original, migrated, noise, found)
    return found


def _struck(
    drill: Planned, before: Attempt, after: Attempt, dynamic: bool, found: Findings, *, late: bool
) -> None:  # fmt: skip
    at = f"step {before.window}"
    own = before.optimizer in drill.optimizers
    if late and not after.skipped and _finite(after):
        found.announced.append(f"{at}: {LATE}")
        found.over = True
    elif before.skipped and not after.skipped:
        if _cleared(drill, before) and _cleared(drill, after) and _finite(after):
            found.announced.append(f"{at}: {scale.CLEARED}")
            found.over = True
        elif not own and _finite(after):
            found.announced.append(f"{at}: {ALL_SKIP}")
            found.over = True
        else:
            found.red(f"{at}: {_reached(after)}; Apex skips this step", *_why_taken(after))
    elif after.skipped and not before.skipped:
        if not dynamic:
            found.announced.append(STATIC)
            found.over = True
        else:
            found.red(f"{at} is skipped; the original takes it", "GradScaler sees an overflow that Apex does not see")
    elif not before.skipped and not _finite(before) and not dynamic:
        found.announced.append("under a static scale nothing is skipped, on either side")
        found.over = True


def _cleared(drill: Planned, attempt: Attempt) -> bool:
    """Whether every pass that was spoiled had its gradients zeroed before the step."""
    spoiled = [number for number, b in enumerate(attempt.backwards) if not math.isfinite(b.loss)]
    forced = next((spec.drill for spec in drill.specs.values()), None)
    if forced is not None and forced.overflow_at is not None:
        spoiled.append(forced.backward)
    return max(spoiled, default=0) < attempt.cleared


def _finite(attempt: Attempt) -> bool:
    return attempt.grad_norm is not None and math.isfinite(attempt.grad_norm)


def _reached(after: Attempt) -> str:
    if not _finite(after):
        return "gradients that are not finite reach the weights in the migrated program"
    return "the migrated program takes a step in which gradients had overflowed"


def _why_taken(after: Attempt) -> list[str]:
    if after.by_scaler:
        return ["gradients change between `scaler.unscale_` and `scaler.step`, or are not those the scaler looks at"]
    return [
        "`optimizer.step()` stands where `scaler.step(optimizer)` belongs: after `scaler.unscale_` nothing but "
        "`scaler.step` looks for inf"
    ]


def _afterwards(
    drill: Planned, original: Recording, migrated: Recording, noise: Distance | None, found: Findings
) -> None:
    assert drill.struck is not None
    last = drill.struck.windows[-1]
    following = [
        (before, after)
        for before, after in zip(original.attempts, migrated.attempts, strict=False)
        if before.window > last
    ]
    for before, after in following:
        if before.loss is not None and math.isfinite(before.loss) and not math.isfinite(after.loss or 0.0):
            found.red(
                f"step {after.window}: the loss is {after.loss}, in the original {before.loss:.6g}",
                "what is not finite has reached the weights",
            )
            return
    if found.over:
        _lost(following, found)
        return
    for before, after in following:
        if any(abs(x - y) > 1e-6 * abs(x) for x, y in zip(before.lr, after.lr, strict=False)):
            found.red(
                f"step {before.window}: learning rate {after.lr[0]:.6g}, in the original {before.lr[0]:.6g}",
                "the scheduler is held back after a skipped step; the original moves it at every step",
            )
            return
    _scale(drill, original, migrated, found)
    if not found.evidence and following and noise is not None:
        _gradients(original, migrated, following[0], noise, found)


def _lost(following: list[tuple[Attempt, Attempt]], found: Findings) -> None:
    """Both go on in their own way; the migrated program must go on at all."""
    if following and all(after.skipped for _, after in following) and not all(b.skipped for b, _ in following):
        found.red("no step is taken any more by the migrated program", KEPT)


def _scale(drill: Planned, original: Recording, migrated: Recording, found: Findings) -> None:
    """After the overflow both have halved once, and count clean passes from none on."""
    assert drill.struck is not None
    updated, shared = False, scale.scale_per_loss(original, migrated)
    halved: float | None = None  # Apex's scale after the overflow
    for before, after in zip(original.attempts, migrated.attempts, strict=False):
        if after.window <= drill.struck.windows[-1]:
            updated = updated or (after.window >= drill.struck.first and bool(after.updates))
            continue
        halved = halved or scale_of(before)
        told = difference(before, after, strict=drill.accumulation == 1) if updated else None
        if told is not None:
            told = f"step {before.window}: {told}"
            grown = (scale_of(before) or 0.0) > (halved or 0.0)
            why = scale.bound_of(original) or (scale.SCALE_PER_LOSS if shared else None)
            if why is None and drill.accumulation > 1 and (grown or _overflows(drill, original, before.window) > 1):
                why = scale.GROWTH_ACCUMULATED if grown else scale.OVERFLOW_ACCUMULATED
            if why is not None:
                found.announced.append(f"{told} ({why})")
            else:
                found.red(told, KEPT if after.skipped and not before.skipped else NOT_HALVED)
            return
        updated = updated or bool(after.updates)  # Apex halves at once, GradScaler when it is updated


def _overflows(drill: Planned, original: Recording, before: int) -> int:
    """Backward passes that have overflowed since the drill struck: a loss that is nan may feed several of them."""
    assert drill.struck is not None
    struck = [a for a in original.attempts if a.window in drill.struck.windows]
    later = [a for a in original.attempts if drill.struck.windows[-1] < a.window < before]
    spoiled = sum(not math.isfinite(b.loss) for a in struck for b in a.backwards)
    return max(1, spoiled) + sum(a.skipped for a in later)


def _gradients(
    original: Recording, migrated: Recording, pair: tuple[Attempt, Attempt], noise: Distance, found: Findings
) -> None:
    """Nothing was updated on either side, so the next step starts from equal weights."""
    before, after = pair
    if before.skipped or after.skipped:
        return
    seen = lockstep.distance(original.folder, migrated.folder, "grads", before.window)
    step = StepComparison(before.window, before.backwards[0].scale if before.backwards else 1.0, seen, noise)
    if problems := lockstep.problems(step, before, after):
        found.evidence += problems
        found.causes.append("the step that should have been skipped left a trace: weights, or gradients not zeroed")
