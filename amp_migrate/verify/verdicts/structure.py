"""Before numbers are compared: did both programs take the same steps on the same batches?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from amp_migrate.verify.record import Attempt, Recording
from amp_migrate.verify.thresholds import BATCH_TOLERANCE


def differences(original: Recording, migrated: Recording) -> tuple[list[str], list[str]]:
    """What differs in the sequence of steps, as sentences, and the likely causes. Empty when steps can be compared."""
    before, after = original.attempts, migrated.attempts
    counts = _steps(before), _steps(after)
    if counts[0] != counts[1]:
        told = [
            f"optimizer {number} ({_name(before, after, number)}): {counts[0][number]} steps in the original, "
            f"{counts[1][number]} in the migrated program"
            for number in sorted(counts[0] | counts[1])
            if counts[0][number] != counts[1][number]
        ]
        return told, ["a step was lost or added", "an `if` around step or update moved"]
    for one, other in zip(before, after, strict=True):
        if one.optimizer != other.optimizer:
            return [
                f"step {one.window}: optimizer {one.optimizer} steps in the original, {other.optimizer} in the "
                "migrated program"
            ], ["the order of the optimizers changed"]
    for one, other in zip(before, after, strict=True):
        if not one.skipped and not other.skipped and one.with_grad != other.with_grad:
            return [
                f"step {one.window}: {one.with_grad} parameters have a gradient in the original, {other.with_grad} in "
                "the migrated program"
            ], ["part of the model no longer takes part in the loss", "parameters were detached or frozen"]
    return [], []


def batches_differ(one: Sequence[Attempt], other: Sequence[Attempt]) -> int | None:
    """The first step whose batch differs, None when all agree. Only where both saw a comparable first forward."""
    for a, b in zip(one, other, strict=False):
        if len(a.inputs) != len(b.inputs):
            continue
        if any(
            abs(x - y) > BATCH_TOLERANCE * max(abs(x), abs(y), 1e-6) for x, y in zip(a.inputs, b.inputs, strict=True)
        ):
            return a.window
    return None


def _steps(attempts: Sequence[Attempt]) -> Counter[int]:
    return Counter(attempt.optimizer for attempt in attempts)


def _name(before: Sequence[Attempt], after: Sequence[Attempt], number: int) -> str:
    return next((a.name for a in [*before, *after] if a.optimizer == number), "?")
