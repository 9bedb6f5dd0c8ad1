"""Verdict 1, lockstep: from the original's state, on the same batch, does one migrated step give the same gradients?

The migrated program runs from its start; at each captured step the original's params, optimizer state, buffers, random
state and loss scale are put in place before the forward. What it then computes is compared with what the original
computed there, so no difference can hide in, or be excused by, a drifted trajectory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amp_migrate.verify import thresholds as t
from amp_migrate.verify.record import Attempt, Recording
from amp_migrate.verify.verdicts import structure
from amp_migrate.verify.verdicts.verdict import Verdict

NAME = "lockstep"


@dataclass
class Distance:
    """How far one step's gradients (or update) are from another's."""

    median: float = math.nan  # median relative error over the elements that matter
    ratio: float = math.nan  # of the norms
    cosine: float = math.nan


@dataclass
class StepComparison:
    """One compared step: the migrated program's distance from the original, and that of the original under noise."""

    window: int
    scale: float
    seen: Distance
    noise: Distance
    loss_error: float = 0.0
    loss_noise: float = 0.0
    update: Distance = field(default_factory=Distance)
    update_noise: Distance = field(default_factory=Distance)
    clip_ratio: float | None = None
    problems: list[str] = field(default_factory=list)


def judge(
    original: Recording, migrated: Recording, forced: Recording, rounding: Recording, *, wider: bool = False
) -> Verdict:
    """`migrated` ran freely; `forced` is the migrated and `rounding` the original program with forced state.

    `wider`: the migrated program computes in a format of wider range, as was asked for: what overflowed may now step.
    """
    told, causes = structure.differences(original, migrated)
    if told:
        return Verdict(NAME, "disagrees", told[0], told, causes)
    misfits = sorted({m for attempt in forced.attempts for m in attempt.misfits})
    if misfits:
        return Verdict(
            NAME, "disagrees", "the original's state does not fit the migrated program", misfits,
            ["parameters were added, lost or reordered", "an optimizer was created twice"],
        )  # fmt: skip
    forced_at = [a for a in forced.attempts if a.forced]
    moved = structure.batches_differ([original.attempts[a.window] for a in forced_at], forced_at)
    if moved is not None:
        return Verdict(
            NAME, "disagrees", f"step {moved}: the two programs see different batches",
            [f"mean magnitude of the batch {_inputs(original, moved)} against {_inputs(forced, moved)}"],
            ["random numbers are drawn in another order", "the data pipeline changed"],
        )  # fmt: skip
    steps = [
        compare(original, forced, rounding, attempt.window, wider=wider)
        for attempt in _from_equal_states(forced.attempts)
        if attempt.window < len(original.attempts)
    ]
    if not any(not math.isnan(s.seen.ratio) for s in steps):
        return _nothing_compared(original, steps)
    return _verdict(steps)


def _from_equal_states(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts to compare. With several optimizers a step may use what an earlier forward computed, so the attempt
    before must have started from the original's state too."""
    alone = len({a.optimizer for a in attempts}) == 1
    return [
        a for before, a in zip([None, *attempts], attempts, strict=False)
        if a.compared and (alone or before is None or before.compared)
    ]  # fmt: skip


def compare(
    original: Recording, forced: Recording, rounding: Recording, window: int, *, wider: bool = False
) -> StepComparison:
    """Compare one step of the three runs."""
    before, after = original.attempts[window], forced.attempts[window]
    under_noise = rounding.attempts[window] if window < len(rounding.attempts) else None
    scale = before.backwards[0].scale if before.backwards else 1.0
    step = StepComparison(window, scale, Distance(), Distance())
    if wider and before.skipped and not after.skipped:
        return step  # overflowed in float16 only: there is no gradient to compare with
    if before.skipped != after.skipped:
        step.problems.append(
            f"step {window} is {'skipped' if before.skipped else 'taken'} in the original and "
            f"{'skipped' if after.skipped else 'taken'} in the migrated program, from the same state"
        )
        return step
    if not before.skipped:
        step.seen = distance(original.folder, forced.folder, "grads", window)
        step.update = distance(original.folder, forced.folder, "update", window)
        if under_noise is not None and not under_noise.skipped:
            step.noise = distance(original.folder, rounding.folder, "grads", window)
            step.update_noise = distance(original.folder, rounding.folder, "update", window)
    step.loss_error = _loss_error(before, after)
    step.loss_noise = 0.0 if under_noise is None else _loss_error(before, under_noise)
    step.clip_ratio = _clip_ratio(before, after)
    step.problems += problems(step, before, after)
    return step


def problems(step: StepComparison, before: Attempt, after: Attempt) -> list[str]:
    problems = []
    at = f"step {step.window}"
    seen, noise = step.seen, step.noise
    if not math.isnan(seen.ratio):
        if not math.isfinite(seen.ratio) or abs(math.log(max(seen.ratio, 1e-30))) > max(
            t.NORM_RATIO_FLOOR, t.LOCKSTEP_FACTOR * _off(noise.ratio)
        ):
            problems.append(
                f"{at}: gradient norm is {seen.ratio:.6g} times the original's{_in_scales(seen.ratio, step)}"
            )
        if not 1 - seen.cosine <= max(t.COSINE_DEFECT_FLOOR, t.LOCKSTEP_FACTOR**2 * (1 - _or(noise.cosine, 1.0))):
            problems.append(
                f"{at}: gradients point elsewhere, cosine {seen.cosine:.6f} (noise alone {noise.cosine:.6f})"
            )
        if not seen.median <= max(t.MEDIAN_ERROR_FLOOR, t.LOCKSTEP_FACTOR * _or(noise.median, 0.0)):
            problems.append(
                f"{at}: median relative error of the gradient {seen.median:.2g} (noise alone {noise.median:.2g})"
            )
    update, update_noise = step.update, step.update_noise
    if not math.isnan(update.ratio) and not problems:
        limit = max(t.UPDATE_NORM_FLOOR, t.LOCKSTEP_FACTOR * _off(update_noise.ratio))
        if not (math.isfinite(update.ratio) and abs(math.log(max(update.ratio, 1e-30))) <= limit):
            problems.append(
                f"{at}: equal gradients, but the update of the weights is {update.ratio:.4g} times as large"
            )
        elif not 1 - update.cosine <= max(
            t.UPDATE_COSINE_FLOOR, t.LOCKSTEP_FACTOR**2 * (1 - _or(update_noise.cosine, 1.0))
        ):
            problems.append(f"{at}: equal gradients, but the update points elsewhere (cosine {update.cosine:.4f})")
    if step.loss_error > max(t.LOSS_ERROR_FLOOR, t.LOCKSTEP_FACTOR * step.loss_noise):
        problems.append(f"{at}: loss {after.loss:.6g} against {before.loss:.6g}, from the same weights and batch")
    if step.clip_ratio is not None and abs(math.log(max(step.clip_ratio, 1e-30))) > max(
        5 * t.NORM_RATIO_FLOOR, t.LOCKSTEP_FACTOR * _off(noise.ratio)
    ):
        problems.append(
            f"{at}: the norm found by clipping is {step.clip_ratio:.6g} times the original's, by what it is clipped to"
            f"{_in_scales(step.clip_ratio, step)}"
        )
    return problems


def _verdict(steps: Sequence[StepComparison]) -> Verdict:
    problems = [problem for step in steps for problem in step.problems]
    judged = [s for s in steps if not math.isnan(s.seen.ratio)]
    worst = max(judged, key=lambda s: abs(math.log(max(s.seen.ratio, 1e-30))))
    summary = (
        f"{len(judged)} steps from the original's state: median error {max(s.seen.median for s in judged):.1e}, "
        f"norm ratio {worst.seen.ratio:.6g}, cosine {min(s.seen.cosine for s in judged):.6f}"
    )
    data = {"steps": [_as_json(s) for s in steps]}
    announced = []
    if blind := [s for s in judged if s.noise.median > t.BLIND]:
        announced.append(
            f"at {len(blind)} of {len(judged)} steps rounding alone moves the gradients as far (median error "
            f"{max(s.noise.median for s in blind):.2g} under noise; a program that takes the sign of a gradient, say): "
            "there lockstep cannot tell a fault from rounding"
        )
    if not problems:
        return Verdict(NAME, "agrees", summary, announced=announced, data=data)
    return Verdict(NAME, "disagrees", problems[0], problems, causes(steps), announced, data)


def begins_alike(verdict: Verdict) -> bool:
    """Whether the first step that was compared is no part of the disagreement."""
    steps = verdict.data.get("steps", [])
    return bool(steps) and not any(told.startswith(f"step {steps[0]['step']}:") for told in verdict.evidence)


def without_state(verdict: Verdict, because: str) -> Verdict:
    """A disagreement of later steps that proves nothing, as not all of the state could be put in place."""
    first = verdict.data["steps"][0]["step"]
    told = f"only step {first} starts from equal states, and is equal: {because}"
    return Verdict(NAME, "unjudged", told, announced=verdict.evidence[:1], data=verdict.data)


def causes(steps: Sequence[StepComparison]) -> list[str]:
    """What the pattern of the differences usually means."""
    found = []
    scaled = [s for s in steps if s.scale != 1.0 and s.problems and not math.isnan(s.seen.ratio)]
    if scaled and all(_near(s.seen.ratio * s.scale, 1.0) for s in scaled):
        found.append(
            "gradients are divided by the scale once too often: backward on the unscaled loss, unscaled twice, or "
            "clipped while still scaled (`scaler.unscale_(optimizer)` missing before the clip)"
        )
    elif scaled and all(_near(s.seen.ratio / s.scale, 1.0) for s in scaled):
        found.append(
            "gradients still carry the scale: the loss is scaled twice, or `optimizer.step()` replaced `scaler.step`"
        )
    if any(s.clip_ratio is not None and s.scale != 1.0 and _near(s.clip_ratio / s.scale, 1.0) for s in scaled):
        found.insert(0, "clipping reads scaled gradients: `scaler.unscale_(optimizer)` must come before it")
    elif any(s.clip_ratio is not None and s.scale != 1.0 and _near(s.clip_ratio * s.scale, 1.0) for s in scaled):
        found.insert(
            0, "the original clips gradients that still carry the loss scale, the migrated program unscaled ones"
        )
    elif any(not math.isnan(s.seen.cosine) and s.seen.cosine < 0.999 for s in steps):
        found.append(
            "gradients are clipped or read at another moment (per micro-batch?), or part of the loss is missing"
        )
    if not found and any("update" in problem for s in steps for problem in s.problems):
        found.append("another optimizer, learning rate or weight decay rule")
    if not found and any("loss" in problem for s in steps for problem in s.problems):
        found.append("forward or loss differ: dropout, a moved normalisation, a division by the accumulation steps")
    if not found and any("skipped" in problem for s in steps for problem in s.problems):
        found.append("an overflow leads to a skipped step on one side only")
    return found or ["forward or backward compute something else: see the precision verdict"]


def distance(one: Path, other: Path, what: str, window: int) -> Distance:
    """Between the tensors two runs left for this step; all nan when one is missing.

    Of an update only the elements are compared whose gradient matters: where a gradient is mathematically zero (a bias
    before batch norm), Adam turns its rounding noise into a full-sized step.
    """
    import torch

    try:
        a, b = (torch.load(folder / f"{what}_{window}.pt", weights_only=True) for folder in (one, other))
        grads = a if what == "grads" else torch.load(one / f"grads_{window}.pt", weights_only=True)
    except FileNotFoundError:
        return Distance()
    kept = [
        i for i, (x, y, g) in enumerate(zip(a, b, grads, strict=False)) if not (x is None or y is None or g is None)
    ]
    if not kept:
        return Distance()
    x, y, gradient = (torch.cat([tensors[i].flatten().double() for i in kept]) for tensors in (a, b, grads))
    matters = gradient.abs() > 1e-2 * gradient.norm() / math.sqrt(gradient.numel())
    if what != "grads":
        x, y, matters = x[matters], y[matters], matters[matters]
    norm_x, norm_y = float(x.norm()), float(y.norm())
    if norm_x == 0 or not math.isfinite(norm_x):
        return Distance() if norm_y == norm_x else Distance(math.inf, math.inf, 0.0)
    error = (y[matters] - x[matters]).abs() / x[matters].abs().clamp_min(1e-45)
    return Distance(
        median=float(error.median()) if error.numel() else 0.0,
        ratio=norm_y / norm_x,
        cosine=min(1.0, float(x @ y) / (norm_x * norm_y)) if norm_y else 0.0,
    )


def _nothing_compared(original: Recording, steps: Sequence[StepComparison]) -> Verdict:
    problems = [problem for step in steps for problem in step.problems]
    if problems:
        return Verdict(NAME, "disagrees", problems[0], problems, ["overflow is treated differently"])
    if all(a.skipped for a in original.attempts):
        return Verdict(NAME, "unjudged", "the original skipped every step for overflow; run more steps (--steps)")
    return Verdict(NAME, "unjudged", "no step could be compared: the programs call no module before their backward")


def _loss_error(one: Attempt, other: Attempt) -> float:
    if one.loss is None or other.loss is None or len(one.backwards) != len(other.backwards):
        return 0.0
    if not (math.isfinite(one.loss) and math.isfinite(other.loss)):
        return 0.0 if math.isfinite(one.loss) == math.isfinite(other.loss) else math.inf
    size = max(abs(b.loss) for b in one.backwards)
    return max(abs(a.loss - b.loss) for a, b in zip(one.backwards, other.backwards, strict=True)) / max(size, 1e-12)


def _clip_ratio(one: Attempt, other: Attempt) -> float | None:
    """Between the norms the last clip of the step returned, each of them by what it was clipped to."""
    last = [next((c for c in reversed(a.clips) if c.norm is not None), None) for a in (one, other)]
    before, after = [math.nan if c is None or c.norm is None else c.norm for c in last]
    if not (math.isfinite(before) and math.isfinite(after)) or before == 0:
        return None
    limits = [math.nan if c is None else c.limit for c in last]
    clips = all(math.isfinite(limit) and limit > 0 for limit in limits)
    return after / before * (limits[0] / limits[1] if clips else 1.0)


def _inputs(recording: Recording, window: int) -> str:
    return ", ".join(f"{v:.6g}" for v in recording.attempts[window].inputs)


def _in_scales(ratio: float, step: StepComparison) -> str:
    if step.scale == 1.0:
        return ""
    if _near(ratio / step.scale, 1.0):
        return f" (the loss scale, {step.scale:g})"
    if _near(ratio * step.scale, 1.0):
        return f" (1 / the loss scale, {step.scale:g})"
    return ""


def _near(value: float, target: float) -> bool:
    return math.isfinite(value) and abs(value - target) < 0.05 * target


def _off(ratio: float) -> float:
    return abs(math.log(ratio)) if math.isfinite(ratio) and ratio > 0 else 0.0


def _or(value: float, default: float) -> float:
    return default if math.isnan(value) else value


def _as_json(step: StepComparison) -> dict[str, Any]:
    return {
        "step": step.window,
        "scale": step.scale,
        "median_error": _number(step.seen.median),
        "norm_ratio": _number(step.seen.ratio),
        "cosine": _number(step.seen.cosine),
        "noise_median_error": _number(step.noise.median),
        "noise_norm_ratio": _number(step.noise.ratio),
        "noise_cosine": _number(step.noise.cosine),
        "loss_error": _number(step.loss_error),
        "update_norm_ratio": _number(step.update.ratio),
        "clip_norm_ratio": step.clip_ratio,
        "problems": step.problems,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
