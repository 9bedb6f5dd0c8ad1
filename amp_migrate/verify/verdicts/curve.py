"""Verdict 4, loss curve: inside the band that rounding alone produces.

The original is run again under noise of fp16 size, on its weights once and on every gradient. At each step the band
is as wide as the furthest of these reruns has been from the original's curve so far: trajectories part with time and
do not come back. The migrated curve may lie CURVE_FACTOR bands away, at CURVE_OUTSIDE of the steps further.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from amp_migrate.verify.record import Recording
from amp_migrate.verify.thresholds import CURVE_FACTOR, CURVE_FLOOR, CURVE_OUTSIDE
from amp_migrate.verify.verdicts.verdict import Verdict

NAME = "loss curve"


def judge(original: Recording, migrated: Recording, reruns: Sequence[Recording]) -> Verdict:
    """`reruns` are the original under noise, from the start; `migrated` ran freely."""
    curves = series(original), series(migrated)
    names = sorted(set(curves[0]) & set(curves[1]))
    data: dict[str, Any] = {"series": {}}
    evidence: list[str] = []
    worst, final = 0.0, ""
    for name in names:
        one, other = curves[0][name], curves[1][name]
        steps = min(len(one), len(other))
        limit = band(one, [series(r).get(name, []) for r in reruns])
        ratios = [_ratio(o, m, b) for o, m, b in zip(one, other, limit, strict=False)]
        outside = [i for i, r in enumerate(ratios) if r > CURVE_FACTOR]
        worst = max([worst, *ratios])
        data["series"][name] = {"original": one, "migrated": other, "band": limit}
        data["worst"] = worst
        final = f"; final loss {other[steps - 1]:.5g} against {one[steps - 1]:.5g}"
        if len(outside) > CURVE_OUTSIDE * steps or (
            not math.isfinite(other[steps - 1]) and math.isfinite(one[steps - 1])
        ):
            first = outside[0]
            evidence.append(
                f"{name}: leaves the band at step {first}, loss {other[first]:.6g} against {one[first]:.6g} ± "
                f"{limit[first]:.2g}; outside at {len(outside)} of {steps} steps"
            )
    if not names:
        return Verdict(NAME, "unjudged", "no loss was seen at a backward")
    if evidence:
        return Verdict(
            NAME, "disagrees", evidence[0], evidence, ["see the first step that lockstep rejects"], data=data
        )
    return Verdict(
        NAME, "agrees",
        f"at most {worst:.2g} bands away ({len(reruns)} reruns under rounding noise, {CURVE_FACTOR:g} allowed){final}",
        data=data,
    )  # fmt: skip


def series(recording: Recording) -> dict[str, list[float]]:
    """One curve for each optimizer: the mean of the losses, or micro-batches, that led to each of its steps."""
    found: dict[str, list[float]] = {}
    for number in sorted({a.optimizer for a in recording.attempts}):
        attempts = [a for a in recording.attempts if a.optimizer == number and a.backwards]
        found[f"loss {number}"] = [a.loss for a in attempts if a.loss is not None]
    return {name: curve for name, curve in found.items() if curve}


def band(original: Sequence[float], reruns: Sequence[Sequence[float]]) -> list[float]:
    """Half the width of the band at each step: the furthest any rerun has been so far, and never below the floor."""
    widths = []
    furthest = 0.0
    for step, loss in enumerate(original):
        for rerun in reruns:
            for near in (step, step + 1):  # noise is not finished at the step where it is first felt
                if near < len(rerun) and near < len(original):
                    gap = abs(rerun[near] - original[near])
                    furthest = max(furthest, gap if math.isfinite(gap) else 0.0)
        floor = CURVE_FLOOR * abs(loss) if math.isfinite(loss) else 0.0
        widths.append(max(furthest, floor, 1e-12))
    return widths


def _ratio(one: float, other: float, width: float) -> float:
    if math.isfinite(one) and math.isfinite(other):
        return abs(one - other) / width
    return 0.0 if math.isfinite(one) == math.isfinite(other) else math.inf
