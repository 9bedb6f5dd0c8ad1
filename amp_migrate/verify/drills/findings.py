"""What a drill has shown, and what two steps of two programs are compared by."""

from __future__ import annotations

from dataclasses import dataclass, field

from amp_migrate.verify.record import Attempt


@dataclass
class Findings:
    """What a drill has shown. `over` is set once the two programs rightly go different ways: no numbers follow."""

    evidence: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)
    over: bool = False

    def red(self, told: str, *causes: str) -> None:
        self.evidence.append(told)
        self.causes += causes


def difference(before: Attempt, after: Attempt, *, strict: bool) -> str | None:
    """Between two steps: taken or skipped, scales, and growth trackers if `strict`; None when they are alike."""
    if before.skipped != after.skipped:
        done = {True: "skipped", False: "taken"}
        return f"{done[after.skipped]}, in the original {done[before.skipped]}"
    for one, other in zip(before.backwards, after.backwards, strict=False):
        if None in (one.scaler, other.scaler):
            continue
        if one.scale != other.scale:
            return f"scale {other.scale:g}, in the original {one.scale:g}"
        if strict and one.tracker != other.tracker:
            return f"growth tracker {other.tracker}, in the original {one.tracker}"
    return None


def scale_of(attempt: Attempt) -> float | None:
    """The loss scale of its last backward; None where none was scaled."""
    return next((b.scale for b in reversed(attempt.backwards) if b.scaler is not None), None)
