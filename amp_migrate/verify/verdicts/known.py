"""Differences that come with Apex itself: recognised in the record of the original, named, never excused.

A verdict that disagrees because of one of these still disagrees: the programs do train differently. The report says
that this was to be expected, and why.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from amp_migrate.verify.record import Attempt, Recording


def defects(original: Recording) -> list[str]:
    """What in the original makes a right migration train differently, as sentences."""
    told = []
    if any(clip.scaled for attempt in original.attempts for clip in attempt.clips):
        told.append(
            "the original clips inside `scale_loss`, where gradients still carry the loss scale: a clip that works "
            "after migration did something else before"
        )
    for left in late(original)[:1]:
        told.append(
            f"step {left.window}: after an overflow the original leaves the iteration before `optimizer.step()`, so "
            "Apex skips the next step, a good one, instead; GradScaler does not"
        )
    zeroed = original.end.get("zero_grads", {})
    if original.opt_level == "O2" and not zeroed.get("optimizer"):
        if zeroed.get("module"):
            told.append("the original calls `model.zero_grad()` only: under O2 the gradients of the masters stay")
        else:
            told.append(
                "the original never calls `zero_grad`: under O2 its step clears the gradients of the masters, while "
                "those of fp32 parameters (batch norm) pile up"
            )
    return told


def late(original: Recording) -> list[Attempt]:
    """The steps that were skipped for an overflow of an iteration that never came to its own step.

    More backward passes than usual lie before them; under accumulation, or with several losses, a step is also skipped
    after a clean backward, but after the usual number.
    """
    found = []
    for attempt in original.attempts:
        if attempt.late:
            others = [len(a.backwards) for a in original.attempts if a.optimizer == attempt.optimizer and not a.skipped]
            if others and len(attempt.backwards) > median(others):
                found.append(attempt)
    return found


def by_hand(original: Recording, migrated: Recording) -> float | None:
    """The factor by which a program without Apex's scaler scales its own loss, when the migrated scaler has it too."""
    if any(b.scaler is not None for a in original.attempts for b in a.backwards):
        return None
    ratios = [
        (one.loss / other.loss, other.backwards[0].scale)
        for one, other in zip(original.attempts[:3], migrated.attempts[:3], strict=False)
        if one.loss is not None and other.loss and other.backwards[0].scaler is not None
    ]
    if not ratios:
        return None
    factor, scale = median(r for r, _ in ratios), ratios[0][1]
    return scale if scale != 1.0 and abs(factor / scale - 1) < 0.02 else None


def until_overflow(original: Recording, migrated: Recording, dtype: str | None, start: int = 0) -> Recording:
    """The original up to the first step, from `start` on, that float16 skipped and the bfloat16 asked for takes: from
    there on the two are different trainings. The whole of it otherwise."""
    if dtype == "bfloat16":
        for one, other in zip(original.attempts, migrated.attempts, strict=False):
            if one.window >= start and one.skipped and not other.skipped:
                return replace(original, attempts=original.attempts[: one.window + 1])
    return original


def divided(recording: Recording, factor: float) -> Recording:
    """The recording as if its losses had been scaled by a static scaler of this factor."""
    attempts = [
        replace(
            a,
            backwards=[
                replace(b, loss=b.value / factor, scale=factor, scaler=0, scalings=1, tracker=None) for b in a.backwards
            ],
        )
        for a in recording.attempts
    ]
    static = {"enabled": True, "dynamic": False, "growth_interval": 0, "min_scale": None, "max_scale": None}
    return replace(recording, attempts=attempts, scalers={0: static})
