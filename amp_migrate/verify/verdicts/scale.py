"""Verdict 2, scale: the same loss scale, growth tracker and skipped steps, step by step, under the same rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from amp_migrate.verify.record import Attempt, Backward, Recording
from amp_migrate.verify.verdicts import known
from amp_migrate.verify.verdicts.verdict import Verdict

NAME = "scale"
NEVER = 10**6  # a growth interval nobody reaches: growth was switched off
INTERVAL_CAUSES = ["`growth_interval=` was not set from Apex's scale_window", "a state was loaded over it"]
GROWTH_ACCUMULATED = "growth under accumulation: Apex counts backward passes, GradScaler steps"
OVERFLOW_ACCUMULATED = "overflow under accumulation: Apex halves and counts per backward pass, GradScaler once a step"
SCALE_PER_LOSS = (
    "Apex kept a scale for each loss (`loss_id`), and halves that of the one that overflowed; one GradScaler serves all "
    "losses of an optimizer"
)
RANGE = (
    "half weights, losses and gradients of Apex end at 65504, where autocast has fp32; from a lower scale both take this "
    "step, with the same gradient"
)
CLEARED = (
    "the gradients of the backward pass that overflowed are zeroed before the step, which Apex skips all the same; "
    "GradScaler looks at what is stepped on"
)


@dataclass(frozen=True)
class Rules:
    """How a scaler moves: what decides its future beyond the steps that were run."""

    scaled: bool  # the losses are scaled at all
    dynamic: bool
    backs_off: bool
    interval: int
    start: float


def judge(original: Recording, migrated: Recording, dtype: str | None = None, *, ends_at: int | None = None) -> Verdict:
    """Compare the free runs of both programs; `dtype` is the half format that was asked for. At step `ends_at` the original
    overflowed for want of range, as was shown."""
    evidence: list[str] = []
    causes: list[str] = []
    announced: list[str] = []
    only_bfloat16 = migrated.end.get("autocast") == ["bfloat16"]
    if dtype == "bfloat16" and only_bfloat16 and not any(s["enabled"] for s in migrated.scalers.values()):
        told = "bfloat16 has the exponents of fp32: the migrated program needs no loss scale, and skips no step"
        return Verdict(NAME, "agrees", "no scaler under bfloat16", announced=[told])
    accumulation = accumulation_of(original, migrated)
    before, after = rules(original), rules(migrated)
    for number in range(max(len(before), len(after))):
        one = before[min(number, len(before) - 1)] if before else None
        other = after[min(number, len(after) - 1)] if after else None
        _compare_rules(one, other, number, accumulation, evidence, causes, announced)
    first = None
    if not evidence:
        compared = known.until_overflow(original, migrated, dtype)
        first = _compare_steps(compared, migrated, accumulation, ends_at, evidence, causes, announced)
    _compare_scalings(original, migrated, evidence, causes)
    _compare_calls(migrated, evidence, causes)
    data: dict[str, Any] = {"original": _series(original), "migrated": _series(migrated), "first_difference": first}
    if evidence and only_bfloat16:
        causes.insert(0, "bfloat16 in place of float16: see the precision verdict")
    if evidence:
        return Verdict(NAME, "disagrees", evidence[0], evidence, causes, announced, data)
    skipped = sum(a.skipped for a in original.attempts)
    scales = [b.scale for a in original.attempts for b in a.backwards]
    until = "" if first is None else f" up to step {first}"
    summary = f"{len(original.attempts)} steps, {skipped} skipped, scale {_range(scales)}: equal{until}"
    return Verdict(NAME, "agrees", summary, announced=announced, data=data)


def rules(recording: Recording) -> list[Rules]:
    """The rules of every scaler that scaled a loss, in the order of first use."""
    found: list[Rules] = []
    seen: set[int] = set()
    for attempt in recording.attempts:
        for backward in attempt.backwards:
            if backward.scaler is None or backward.scaler in seen:
                continue
            seen.add(backward.scaler)
            config = recording.scalers[backward.scaler]
            updates = [u for a in recording.attempts for u in a.updates]
            held = bool(updates) and all(u is not None for u in updates) and len(set(updates)) == 1
            interval = int(config["growth_interval"])
            found.append(
                Rules(
                    scaled=True,
                    dynamic=bool(config["dynamic"]) and not held and interval < NEVER,
                    backs_off=bool(config["dynamic"]) and not held,
                    interval=interval,
                    start=backward.scale,
                )
            )
    return found


def _compare_rules(
    one: Rules | None, other: Rules | None, number: int, accumulation: int,
    evidence: list[str], causes: list[str], announced: list[str],
) -> None:  # fmt: skip
    if one is None or other is None:
        present = one or other
        assert present is not None
        if not present.dynamic and present.start == 1.0:
            return
        who = ("original", "migrated program") if one is not None else ("migrated program", "original")
        evidence.append(f"losses are scaled by {present.start:g} in the {who[0]} and not scaled in the {who[1]}")
        causes += ["an `enabled=` flag is inverted or lost", "backward runs on the unscaled loss"]
        return
    if one.start != other.start:
        evidence.append(f"scaler {number} starts at {other.start:g}, Apex's at {one.start:g}")
        causes.append("`init_scale=` is wrong or was passed by position (it lands in `device`)")
    if one.dynamic != other.dynamic:
        names = {True: "dynamic", False: "static"}
        evidence.append(f"scaler {number} is {names[other.dynamic]}, Apex's is {names[one.dynamic]}")
        causes.append("`loss_scale=` was not carried over")
    elif one.dynamic and one.interval != other.interval:
        if accumulation > 1 and other.interval == max(1, one.interval // accumulation):
            announced.append(
                f"growth interval {other.interval}: Apex counts {accumulation} backward passes a step, so "
                f"{one.interval} // {accumulation} steps reach its {one.interval}"
            )
        else:
            evidence.append(f"scaler {number} grows after {other.interval} clean steps, Apex's after {one.interval}")
            causes += INTERVAL_CAUSES
    elif one.dynamic and accumulation > 1:
        announced.append(
            f"growth under accumulation: Apex counts every backward pass, so its scale doubles after "
            f"{-(-one.interval // accumulation)} steps of {accumulation}; GradScaler counts steps: {one.interval}"
        )
    if not one.dynamic and not other.dynamic and other.backs_off:
        announced.append("a static Apex scale never skips a step; GradScaler skips, and backs off, on inf")


def _compare_steps(
    original: Recording, migrated: Recording, accumulation: int, ends_at: int | None,
    evidence: list[str], causes: list[str], announced: list[str],
) -> int | None:  # fmt: skip
    """Walk both runs until they differ; what follows a first difference means nothing."""
    dynamic = any(s["dynamic"] for s in original.scalers.values())  # a static scale's tracker has no effect
    shared = accumulation > 1  # then only what follows an update of the migrated scaler can be compared
    updated = True
    for before, after in zip(original.attempts, migrated.attempts, strict=False):
        comparable, updated = updated or not shared, bool(after.updates)
        if not comparable and before.skipped == after.skipped:
            continue
        told = _step_difference(before, after, accumulation, dynamic)
        if told is None:
            continue
        ended = before.window == ends_at
        reason = (
            (CLEARED if before.cleared else RANGE)
            if ended
            else _announced(original, migrated, before, after, accumulation)
        )
        if reason is not None:
            announced.append(f"step {before.window}: {told} ({reason})")
            return before.window
        evidence.append(f"step {before.window}: {told}")
        causes += ["`scaler.update()` is missing, called twice or called before every optimizer has stepped",
                   "an overflow is seen on one side only"]  # fmt: skip
        return before.window
    final = [_final(original), _final(migrated)]
    if None not in final and accumulation == 1 and final[0] != final[1] and bound_of(original) is None:
        (scale, tracker), (scale_after, tracker_after) = final  # type: ignore[misc]
        evidence.append(
            f"after the last step: scale {scale_after:g}, tracker {tracker_after}; Apex {scale:g}, {tracker}"
        )
        causes.append("`scaler.update()` is missing at the end of a step")
    return None


def _step_difference(before: Attempt, after: Attempt, accumulation: int, dynamic: bool) -> str | None:
    if before.skipped != after.skipped:
        done = {True: "skipped", False: "taken"}
        return f"{done[after.skipped]}, in the original {done[before.skipped]}"
    pairs = [(b, a) for b, a in zip(before.backwards, after.backwards, strict=False) if b.scaler is not None]
    for b, a in pairs[:1] if accumulation > 1 else pairs:
        if a.scaler is None:
            continue
        if b.scale != a.scale:
            return f"scale {a.scale:g}, in the original {b.scale:g}"
        if dynamic and b.tracker is not None and a.tracker is not None and b.tracker != a.tracker * accumulation:
            return f"growth tracker {a.tracker}, in the original {b.tracker}"
    return None


def scale_per_loss(original: Recording, migrated: Recording) -> bool:
    """Whether Apex kept several scales (`loss_id`) where one GradScaler now serves all losses of an optimizer."""
    before, after = (
        {
            optimizer: {b.scaler for a in r.attempts if a.optimizer == optimizer for b in a.backwards} - {None}
            for optimizer in {a.optimizer for a in r.attempts}
        }
        for r in (original, migrated)
    )
    return any(len(scalers) > 1 and len(after.get(number, ())) == 1 for number, scalers in before.items())


def _announced(
    original: Recording, migrated: Recording, before: Attempt, after: Attempt, accumulation: int
) -> str | None:
    if any(a.skipped for a in original.attempts[: before.window + 1]) and scale_per_loss(original, migrated):
        return SCALE_PER_LOSS
    if (cap := bound_of(original)) is not None:
        return cap
    if not any(s["dynamic"] for s in original.scalers.values()) and after.skipped and not before.skipped:
        return "a static Apex scale never skips a step, and inf reached its weights; GradScaler skips"
    if accumulation > 1:
        overflowed = any(a.skipped for a in original.attempts[: before.window + 1])
        grown = any(b.scale > original.attempts[0].backwards[0].scale for b in before.backwards)
        if overflowed:
            return OVERFLOW_ACCUMULATED
        if grown:
            return GROWTH_ACCUMULATED
    return None


def bound_of(original: Recording) -> str | None:
    """What to say when the original's scale has reached a bound that GradScaler does not have."""
    for scaler in original.scalers.values():
        cap, floor = scaler.get("max_scale"), scaler.get("min_scale")
        scales = [b.scale for a in original.attempts for b in a.backwards]
        if cap is not None and scales and max(scales) >= cap:
            return f"Apex stops at {cap:g} (2**24 unless told otherwise); GradScaler grows without bound"
        if floor is not None and scales and min(scales) <= floor:
            return f"Apex stops at min_loss_scale {floor:g}; GradScaler has no lower bound"
    return None


def _compare_scalings(original: Recording, migrated: Recording, evidence: list[str], causes: list[str]) -> None:
    for before, after in zip(original.attempts, migrated.attempts, strict=False):
        for b, a in zip(before.backwards, after.backwards, strict=False):
            if a.scalings > b.scalings and a.scalings > 1:
                evidence.append(f"step {after.window}: the loss goes through `scaler.scale` {a.scalings} times")
                causes.append("the loss is scaled twice")
                return
            if b.scaler is not None and a.scaler is None and _is_scaled(migrated):
                evidence.append(f"step {after.window}: backward runs on a loss that was not scaled")
                causes.append("`loss.backward()` instead of `scaler.scale(loss).backward()`")
                return


def _is_scaled(recording: Recording) -> bool:
    return any(s["enabled"] for s in recording.scalers.values())


def _compare_calls(migrated: Recording, evidence: list[str], causes: list[str]) -> None:
    """More updates than passes over all optimizers: the tracker runs ahead."""
    enabled = [s for s in migrated.scalers.values() if s["enabled"]]
    updates = sum(len(a.updates) for a in migrated.attempts)
    left = sum(max(0, a.unscales - 1) for a in migrated.attempts)  # iterations left after an overflow, before the step
    if len(enabled) == 1 and updates > len(migrated.attempts) + left:
        evidence.append(f"{updates} calls of `scaler.update()` for {len(migrated.attempts)} steps")
        causes.append("`scaler.update()` stands inside the accumulation loop or is doubled")


def accumulation_of(original: Recording, migrated: Recording) -> int:
    """How many of Apex's counts make one of GradScaler's: Apex counts backward passes that unscale, natively updates.

    More than one under accumulation, and where several losses of one iteration share a scaler.
    """
    firsts: list[Backward] = []
    updated = True
    for before, after in zip(original.attempts, migrated.attempts, strict=False):
        if before.backwards and updated:
            firsts.append(before.backwards[0])
        updated = bool(after.updates) if any(a.updates for a in migrated.attempts) else bool(before.backwards)
    advances: Counter[int] = Counter()
    for one, other in pairwise(firsts):
        if one.scaler == other.scaler and one.scale == other.scale and None not in (one.tracker, other.tracker):
            advances[other.tracker - one.tracker] += 1  # type: ignore[operator]
    advances = Counter({step: n for step, n in advances.items() if step > 0})
    return advances.most_common(1)[0][0] if advances else 1


def _final(recording: Recording) -> tuple[float, int] | None:
    dynamic = [f for f in recording.final.values() if f["config"]["dynamic"]]
    return (float(dynamic[0]["scale"]), int(dynamic[0]["tracker"])) if len(dynamic) == 1 else None


def _series(recording: Recording) -> dict[str, list[Any]]:
    return {
        "scale": [a.backwards[0].scale if a.backwards else None for a in recording.attempts],
        "tracker": [a.backwards[0].tracker if a.backwards else None for a in recording.attempts],
        "skipped": [a.window for a in recording.attempts if a.skipped],
    }


def _range(scales: list[float]) -> str:
    if not scales:
        return "none"
    low, high = min(scales), max(scales)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
