"""Each verdict on records that are written down here: what agrees, what does not, and what is known to differ."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from amp_migrate.verify.record import Attempt, Backward, Clip, Recording
from amp_migrate.verify.recording.spec import RunSpec
from amp_migrate.verify.verdicts import cost, curve, known, precision, scale, structure
from amp_migrate.verify.verdicts.verdict import Status, Verdict, failure_causes, merge

DYNAMIC = {"enabled": True, "dynamic": True, "growth_interval": 2000, "min_scale": None, "max_scale": None}
STATIC = {**DYNAMIC, "dynamic": False}
OFF = {**STATIC, "enabled": False}


def backward(loss: float = 1.0, scale: float = 65536.0, tracker: int | None = 0, **more: Any) -> Backward:
    values = {"scaler": 0, "scalings": 1, "autocast": False, **more}
    return Backward(loss=loss, value=loss * scale, scale=scale, tracker=tracker, **values)


def run(
    attempts: list[Attempt], scaler: dict[str, Any] | None = None, level: str | None = "O1", **more: Any
) -> Recording:
    """A recording; of Apex, where there is a level."""
    apex = [{"opt_level": level}] if level else []
    scalers = {0: DYNAMIC if scaler is None else scaler}
    return Recording(RunSpec("train.py", (), ".", "original", ".", 1), attempts, scalers=scalers, apex=apex, **more)


def steps(count: int, *, scale: float = 65536.0, losses: list[float] | None = None, **more: Any) -> list[Attempt]:
    """Clean steps with one scaled backward and one update each."""
    return [
        Attempt(i, updates=[None], backwards=[backward((losses or [1.0] * count)[i], scale, i)], **more)
        for i in range(count)
    ]


def native(attempts: list[Attempt], scaler: dict[str, Any] | None = None, **more: Any) -> Recording:
    return run(attempts, scaler, level=None, **more)


# -- scale -----------------------------------------------------------------------------------------------------------


def test_the_same_scale_agrees() -> None:
    found = scale.judge(run(steps(4)), native(steps(4)))
    assert found.status == "agrees"
    assert found.summary == "4 steps, 0 skipped, scale 65536: equal"
    assert not found.announced
    assert found.data["first_difference"] is None
    assert found.data["original"] == {"scale": [65536.0] * 4, "tracker": [0, 1, 2, 3], "skipped": []}


def disagreement(one: Recording, other: Recording) -> Verdict:
    found = scale.judge(one, other)
    assert found.status == "disagrees", found
    assert found.causes
    return found


def test_another_start() -> None:
    found = disagreement(run(steps(3)), native(steps(3, scale=128.0)))
    assert found.evidence == ["scaler 0 starts at 128, Apex's at 65536"]
    assert found.data["first_difference"] is None  # what follows from it is not told as well


def test_dynamic_and_static_are_two_things() -> None:
    assert "is static, Apex's is dynamic" in disagreement(run(steps(3)), native(steps(3), STATIC)).summary
    assert "is dynamic, Apex's is static" in disagreement(run(steps(3), STATIC), native(steps(3))).summary


def test_another_growth_interval() -> None:
    found = disagreement(run(steps(3)), native(steps(3), {**DYNAMIC, "growth_interval": 500}))
    assert found.summary == "scaler 0 grows after 500 clean steps, Apex's after 2000"


def test_an_interval_that_nobody_reaches_is_a_static_scale_that_backs_off() -> None:
    still = {**DYNAMIC, "growth_interval": scale.NEVER}
    found = scale.judge(run(steps(3), STATIC), native(steps(3), still))
    assert found.status == "agrees"
    assert "never skips a step" in found.announced[0]


@pytest.mark.parametrize(("interval", "status"), [(10**6, "agrees"), (10**6 - 1, "disagrees")])
def test_what_nobody_reaches(interval: int, status: str) -> None:
    found = scale.judge(run(steps(3), STATIC), native(steps(3), {**DYNAMIC, "growth_interval": interval}))
    assert found.status == status


def test_two_scalers_are_compared_in_the_order_of_their_first_use() -> None:
    def two(first: int, second: int, *intervals: int) -> Recording:
        attempts = [Attempt(0, 0, updates=[None], backwards=[backward(scaler=first)])]
        attempts.append(Attempt(1, 1, updates=[None], backwards=[backward(scaler=second)]))
        found = native(attempts)
        found.scalers = {n: {**DYNAMIC, "growth_interval": i} for n, i in zip((first, second), intervals, strict=True)}
        return found

    assert scale.judge(two(0, 1, 2000, 500), two(7, 3, 2000, 500)).status == "agrees"
    found = disagreement(two(0, 1, 2000, 500), two(7, 3, 2000, 2000))
    assert found.evidence == ["scaler 1 grows after 2000 clean steps, Apex's after 500"]


def test_a_scale_that_is_given_at_each_update_is_held() -> None:
    held = [replace(a, updates=[65536.0]) for a in steps(3)]
    found = scale.judge(run(steps(3), STATIC), native(held))
    assert found.status == "agrees"
    assert not found.announced
    other = [replace(a, updates=[65536.0 * i]) for i, a in enumerate(steps(3), 1)]
    assert scale.judge(run(steps(3), STATIC), native(other)).status == "disagrees"


@pytest.mark.parametrize("scaled_is_original", [True, False])
def test_a_loss_that_is_scaled_on_one_side_only(scaled_is_original: bool) -> None:
    plain = [replace(a, backwards=[replace(a.backwards[0], scaler=None, scale=1.0)]) for a in steps(3)]
    pair = (run(steps(3)), native(plain)) if scaled_is_original else (run(plain), native(steps(3)))
    who = ("original", "migrated program") if scaled_is_original else ("migrated program", "original")
    found = disagreement(*pair)
    assert found.summary == f"losses are scaled by 65536 in the {who[0]} and not scaled in the {who[1]}"


def test_a_static_scale_of_one_is_no_scale() -> None:
    plain = [replace(a, backwards=[replace(a.backwards[0], scaler=None)]) for a in steps(3, scale=1.0)]
    assert scale.judge(run(steps(3, scale=1.0), STATIC), native(plain, OFF)).status == "agrees"
    assert scale.judge(run(steps(3, scale=1.0)), native(plain, OFF)).status == "disagrees"
    assert scale.judge(run(steps(3, scale=2.0), STATIC), native(plain, OFF)).status == "disagrees"


def test_a_step_that_only_one_side_skips() -> None:
    skipped = steps(4)
    skipped[2] = replace(skipped[2], skipped=True)
    found = disagreement(run(steps(4)), native(skipped))
    assert found.summary == "step 2: skipped, in the original taken"
    assert found.data["first_difference"] == 2
    assert disagreement(run(skipped), native(steps(4))).summary == "step 2: taken, in the original skipped"


def test_another_scale_or_tracker_at_a_step() -> None:
    other = steps(4)
    other[3] = replace(other[3], backwards=[backward(scale=32768.0, tracker=3)])
    assert disagreement(run(steps(4)), native(other)).summary == "step 3: scale 32768, in the original 65536"
    other[3] = replace(other[3], backwards=[backward(tracker=7)])
    assert disagreement(run(steps(4)), native(other)).summary == "step 3: growth tracker 7, in the original 3"


def test_the_tracker_of_a_static_scale_means_nothing() -> None:
    other = [replace(a, backwards=[replace(a.backwards[0], tracker=0)]) for a in steps(3)]
    assert scale.judge(run(steps(3), STATIC), native(other, STATIC)).status == "agrees"


def final(value: float, tracker: int, config: dict[str, Any] = DYNAMIC) -> dict[int, dict[str, Any]]:
    return {0: {"scale": value, "tracker": tracker, "config": config}}


def test_an_update_that_is_missing_after_the_last_step() -> None:
    found = disagreement(run(steps(3), final=final(65536.0, 3)), native(steps(3), final=final(65536.0, 2)))
    assert found.summary == "after the last step: scale 65536, tracker 2; Apex 65536, 3"
    equal = scale.judge(run(steps(3), final=final(65536.0, 3)), native(steps(3), final=final(65536.0, 3)))
    assert equal.status == "agrees"


def test_a_static_scale_never_skips_and_the_scaler_does() -> None:
    skipped = steps(4)
    skipped[2] = replace(skipped[2], skipped=True)
    backing = {**DYNAMIC, "growth_interval": scale.NEVER}
    found = scale.judge(run(steps(4), STATIC), native(skipped, backing))
    assert found.status == "agrees"
    assert any("inf reached its weights" in a for a in found.announced)
    assert found.data["first_difference"] == 2


def test_a_step_that_only_one_side_skips_where_one_of_two_scales_is_static() -> None:
    skipped = steps(4)
    skipped[2] = replace(skipped[2], skipped=True)
    one, other = run(steps(4)), native(skipped)
    one.scalers[1] = other.scalers[1] = STATIC
    assert disagreement(one, other).summary == "step 2: skipped, in the original taken"


def test_a_step_after_one_without_an_update_is_compared() -> None:
    other = steps(3)
    other[1] = replace(other[1], updates=[])
    other[2] = replace(other[2], backwards=[backward(scale=32768.0, tracker=2)])
    assert disagreement(run(steps(3)), native(other)).summary == "step 2: scale 32768, in the original 65536"


def accumulated(count: int, each: int, *, natively: bool) -> list[Attempt]:
    """Steps with several backwards: Apex counts each of them, a scaler the updates."""
    return [
        Attempt(
            i,
            updates=[None] if natively else [],
            backwards=[backward(tracker=i if natively else i * each + k) for k in range(each)],
        )
        for i in range(count)
    ]


def test_growth_under_accumulation_is_announced() -> None:
    one, other = run(accumulated(4, 4, natively=False)), native(accumulated(4, 4, natively=True))
    assert scale.accumulation_of(one, other) == 4
    found = scale.judge(one, other)
    assert found.status == "agrees", found
    assert "doubles after 500 steps of 4" in found.announced[0]


def test_an_interval_that_is_divided_by_the_accumulation_keeps_the_pace() -> None:
    interval = {**DYNAMIC, "growth_interval": 500}
    one = run(accumulated(4, 4, natively=False))
    found = scale.judge(one, native(accumulated(4, 4, natively=True), interval))
    assert found.status == "agrees"
    assert found.announced == [
        "growth interval 500: Apex counts 4 backward passes a step, so 2000 // 4 steps reach its 2000"
    ]
    wrong = {**DYNAMIC, "growth_interval": 499}
    assert scale.judge(one, native(accumulated(4, 4, natively=True), wrong)).status == "disagrees"


def test_an_overflow_under_accumulation_is_announced() -> None:
    one, other = accumulated(4, 2, natively=False), accumulated(4, 2, natively=True)
    one[2], other[2] = replace(one[2], skipped=True), replace(other[2], skipped=True)
    other[3] = replace(other[3], backwards=[backward(scale=32768.0, tracker=0)] * 2)
    found = scale.judge(run(one), native(other))
    assert found.status == "agrees"
    assert any(scale.OVERFLOW_ACCUMULATED in a for a in found.announced)


def test_growth_that_apex_reached_first_is_announced() -> None:
    one, other = accumulated(4, 2, natively=False), accumulated(4, 2, natively=True)
    one[3] = replace(one[3], backwards=[backward(scale=131072.0, tracker=0)] * 2)
    found = scale.judge(run(one), native(other))
    assert any(scale.GROWTH_ACCUMULATED in a for a in found.announced)


def test_a_scale_that_nothing_explains_under_accumulation() -> None:
    one, other = accumulated(4, 2, natively=False), accumulated(4, 2, natively=True)
    other[3] = replace(other[3], backwards=[backward(scale=32768.0, tracker=3)] * 2)
    assert disagreement(run(one), native(other)).summary == "step 3: scale 32768, in the original 65536"


def test_growth_right_after_the_first_step_is_announced() -> None:
    one, other = accumulated(4, 2, natively=False), accumulated(4, 2, natively=True)
    one[1:] = [replace(a, backwards=[backward(scale=131072.0, tracker=t) for t in (0, 1)]) for a in one[1:]]
    one[2:] = [
        replace(a, backwards=[replace(b, tracker=2 * i + 2) for b in a.backwards]) for i, a in enumerate(one[2:])
    ]
    found = scale.judge(run(one), native(other))
    assert found.status == "agrees"
    assert any("step 1:" in a and scale.GROWTH_ACCUMULATED in a for a in found.announced)


def test_two_steps_tell_the_accumulation() -> None:
    one, other = run(accumulated(2, 4, natively=False)), native(accumulated(2, 4, natively=True))
    assert scale.accumulation_of(one, other) == 4
    still = [replace(a, backwards=[replace(a.backwards[0], tracker=0)]) for a in steps(4)]
    assert scale.accumulation_of(run(still), native(still)) == 1


def test_two_losses_of_an_iteration_share_an_update() -> None:
    one = [Attempt(i, i % 2, backwards=[backward(tracker=i)]) for i in range(6)]
    other = [replace(a, updates=[None] * (a.window % 2), backwards=[backward(tracker=a.window // 2)]) for a in one]
    assert scale.accumulation_of(run(one), native(other)) == 2


def test_an_overflow_that_comes_later_explains_nothing() -> None:
    one = [replace(a, backwards=[backward(scaler=i, tracker=a.window) for i in (0, 1)]) for a in steps(4)]
    other = [replace(a, backwards=[backward(tracker=a.window)] * 2) for a in steps(4)]
    one[2], other[2] = replace(one[2], skipped=True), replace(other[2], skipped=True)
    other[1] = replace(other[1], backwards=[backward(scale=32768.0, tracker=1)] * 2)
    before, after = run(one), native(other)
    before.scalers[1] = DYNAMIC
    assert disagreement(before, after).summary == "step 1: scale 32768, in the original 65536"


def test_a_summary_names_the_scales_that_were_seen() -> None:
    both = steps(3)
    both[2] = replace(both[2], backwards=[backward(scale=32768.0, tracker=2)])
    both[1] = replace(both[1], skipped=True)
    assert scale.judge(run(both), native(both)).summary == "3 steps, 1 skipped, scale 32768 to 65536: equal"
    assert scale.judge(run([Attempt(0)]), native([Attempt(0)])).summary == "1 steps, 0 skipped, scale none: equal"


def test_an_overflow_of_one_loss_of_several_is_announced() -> None:
    one = [replace(a, backwards=[backward(scaler=i, tracker=a.window) for i in (0, 1)]) for a in steps(3)]
    other = [replace(a, backwards=[backward(tracker=a.window)] * 2) for a in steps(3)]
    one[1] = replace(one[1], skipped=True)
    before, after = run(one), native(other)
    before.scalers[1] = DYNAMIC
    found = scale.judge(before, after)
    assert any("step 1:" in a and scale.SCALE_PER_LOSS in a for a in found.announced), found


def test_one_backward_a_step_is_no_accumulation() -> None:
    assert scale.accumulation_of(run(steps(4)), native(steps(4))) == 1
    assert scale.accumulation_of(run([]), native([])) == 1


def test_a_bound_of_apex_is_named() -> None:
    capped = {**DYNAMIC, "max_scale": 65536.0}
    assert "stops at 65536" in str(scale.bound_of(run(steps(2), capped)))
    assert scale.bound_of(run(steps(2), {**DYNAMIC, "max_scale": 65537.0})) is None
    floored = {**DYNAMIC, "min_scale": 65536.0}
    assert "min_loss_scale 65536" in str(scale.bound_of(run(steps(2), floored)))
    assert scale.bound_of(run(steps(2), {**DYNAMIC, "min_scale": 65535.0})) is None
    assert scale.bound_of(run([], capped)) is None


def test_scales_that_part_at_a_bound_are_announced() -> None:
    other = steps(4)
    other[3] = replace(other[3], backwards=[backward(scale=131072.0, tracker=3)])
    found = scale.judge(run(steps(4), {**DYNAMIC, "max_scale": 65536.0}), native(other))
    assert found.status == "agrees"
    assert "GradScaler grows without bound" in found.announced[0]


def test_a_scale_per_loss_that_became_one() -> None:
    one = [replace(a, backwards=[backward(scaler=i) for i in (0, 1)]) for a in steps(3)]
    other = [replace(a, backwards=[backward(), backward()]) for a in steps(3)]
    before, after = run(one), native(other)
    before.scalers[1] = DYNAMIC
    assert scale.scale_per_loss(before, after)
    assert not scale.scale_per_loss(before, before)
    assert not scale.scale_per_loss(after, after)


def test_a_loss_that_is_scaled_twice_or_not_at_all() -> None:
    twice = [replace(a, backwards=[replace(a.backwards[0], scalings=2)]) for a in steps(3)]
    found = scale.judge(run(steps(3)), native(twice))
    assert "goes through `scaler.scale` 2 times" in " ".join(found.evidence)
    assert scale.judge(run(twice), native(twice)).status == "agrees"
    plain = steps(3)
    plain[1] = replace(plain[1], backwards=[replace(plain[1].backwards[0], scaler=None)])
    found = scale.judge(run(steps(3)), native(plain))
    assert "step 1: backward runs on a loss that was not scaled" in found.evidence


def test_updates_that_come_too_often() -> None:
    often = [replace(a, updates=[None, None]) for a in steps(3)]
    found = scale.judge(run(steps(3)), native(often))
    assert "6 calls of `scaler.update()` for 3 steps" in found.evidence
    left = [replace(a, updates=[None, None], unscales=2) for a in steps(3)]
    assert scale.judge(run(steps(3)), native(left)).status == "agrees"


def test_bfloat16_needs_no_scale() -> None:
    plain = [replace(a, backwards=[replace(a.backwards[0], scaler=None, scale=1.0)]) for a in steps(3)]
    other = native(plain, OFF, end={"autocast": ["bfloat16"]})
    without = scale.judge(run(steps(3)), other, "bfloat16")
    assert (without.status, without.summary) == ("agrees", "no scaler under bfloat16")
    found = scale.judge(run(steps(3)), other)
    assert found.status == "disagrees"
    assert found.causes[0].startswith("bfloat16 in place of float16")
    other.scalers[1] = DYNAMIC
    assert scale.judge(run(steps(3)), other, "bfloat16").status == "disagrees"
    half = native(plain, OFF, end={"autocast": ["bfloat16", "float16"]})
    assert scale.judge(run(steps(3)), half, "bfloat16").status == "disagrees"


def test_a_step_that_float16_skipped_and_bfloat16_took_ends_the_comparison() -> None:
    one = steps(4)
    one[1] = replace(one[1], skipped=True)
    other = steps(4)
    assert len(known.until_overflow(run(one), native(other), "bfloat16").attempts) == 2
    assert len(known.until_overflow(run(one), native(other), "float16").attempts) == 4
    assert len(known.until_overflow(run(one), native(other), "bfloat16", start=2).attempts) == 4
    assert len(known.until_overflow(run(other), native(one), "bfloat16").attempts) == 4
    one[0] = replace(one[0], skipped=True)
    assert len(known.until_overflow(run(one), native(other), "bfloat16").attempts) == 1
    assert len(known.until_overflow(run(one), native([]), "bfloat16").attempts) == 4


# -- loss curve ------------------------------------------------------------------------------------------------------


def losses(*values: float, **more: Any) -> Recording:
    return run(steps(len(values), losses=list(values)), **more)


def test_a_curve_within_the_floor_agrees() -> None:
    found = curve.judge(losses(1, 1, 1), losses(1, 1, 1 + 2**-9), [])
    assert found.status == "agrees"
    assert "at most 1 bands away (0 reruns" in found.summary
    assert found.summary.endswith("final loss 1.002 against 1")
    assert found.data["worst"] == pytest.approx(1)
    drawn = {"original": [1, 1, 1], "migrated": [1, 1, 1 + 2**-9], "band": [2**-9] * 3}
    assert found.data["series"] == {"loss 0": drawn}


def test_a_curve_that_leaves_the_band_disagrees() -> None:
    values = [1.0] * 20
    far = [1.0] * 17 + [1.1] * 3
    found = curve.judge(losses(*values), losses(*far), [])
    assert found.status == "disagrees"
    assert "leaves the band at step 17, loss 1.1 against 1 ± 0.002; outside at 3 of 20 steps" in found.summary
    once = [1.0] * 18 + [1.1, 1.1]
    assert curve.judge(losses(*values), losses(*once), []).status == "agrees"


def test_the_band_is_as_wide_as_noise_has_been_so_far() -> None:
    assert curve.band([1.0, 1.0, 1.0], [[1.0, 1.5, 1.0]]) == [0.5, 0.5, 0.5]
    assert curve.band([1.0, 1.0, 1.0], [[1.0, 1.0, 1.5]]) == [2**-9, 0.5, 0.5]
    assert curve.band([2.0], []) == [2**-8]
    assert curve.band([0.0], [[]]) == [1e-12]
    assert curve.band([1.0, math.nan], [[math.inf, 1.0]]) == [2**-9, 1e-12]
    assert curve.band([1.0, 1.0], [[1.25, 1.0], [1.0, 1.125]]) == [0.25, 0.25]


def test_noise_widens_what_is_allowed() -> None:
    values, far = [1.0] * 10, [1.0] + [1.5] * 9
    assert curve.judge(losses(*values), losses(*far), [losses(*([1.0] + [1.2] * 9))]).status == "agrees"
    assert curve.judge(losses(*values), losses(*far), [losses(*([1.0] + [1.1] * 9))]).status == "disagrees"


def test_a_loss_that_is_no_number_at_the_end() -> None:
    values = [1.0] * 20
    lost = [1.0] * 19 + [math.nan]
    found = curve.judge(losses(*values), losses(*lost), [])
    assert found.status == "disagrees"
    assert "leaves the band at step 19, loss nan against 1" in found.summary
    assert curve.judge(losses(*lost), losses(*lost), []).status == "agrees"
    assert curve.judge(losses(*lost), losses(*values), []).status == "agrees"


def test_a_curve_on_the_edge_of_what_is_allowed_agrees() -> None:
    edge = [1 + 3 * 2**-9] * 4
    assert curve.judge(losses(*[1.0] * 4), losses(*edge), []).status == "agrees"
    assert curve.judge(losses(*[1.0] * 4), losses(*(e + 1e-6 for e in edge)), []).status == "disagrees"


def test_curves_of_different_lengths_are_compared_as_far_as_both_go() -> None:
    found = curve.judge(losses(1, 1, 1), losses(1, 1), [losses(1)])
    assert (found.status, found.summary.rpartition("; ")[2]) == ("agrees", "final loss 1 against 1")
    assert curve.judge(losses(1, 1), losses(1, 1, 9), [losses(1, 1, 5)]).status == "agrees"
    assert curve.band([1.0, 1.0], [[1.0, 1.0, 5.0]]) == [2**-9] * 2
    assert curve.band([1.0, 1.0, 1.0], [[1.0]]) == [2**-9] * 3


def test_losses_that_are_no_number_in_between() -> None:
    lost = [1.0, math.nan, math.inf] + [1.0] * 7
    assert curve.judge(losses(*[1.0] * 10), losses(*lost), []).status == "disagrees"
    assert curve.judge(losses(*lost), losses(*[1.0] * 10), []).status == "disagrees"
    assert curve.judge(losses(*lost), losses(*lost), []).status == "agrees"
    assert curve.band([math.inf, math.nan], []) == [1e-12] * 2


def test_without_a_loss_there_is_no_verdict() -> None:
    assert curve.judge(run([Attempt(0)]), losses(1), []).status == "unjudged"
    assert curve.series(run([Attempt(0)])) == {}


def test_each_optimizer_has_a_curve_of_its_means() -> None:
    one = Attempt(0, 0, backwards=[backward(1.0), backward(3.0)])
    two = Attempt(1, 1, backwards=[backward(5.0)])
    assert curve.series(run([one, two, Attempt(2, 1)])) == {"loss 0": [2.0], "loss 1": [5.0]}


# -- structure -------------------------------------------------------------------------------------------------------


def test_the_same_steps_may_be_compared() -> None:
    assert structure.differences(run(steps(3)), native(steps(3))) == ([], [])


def test_steps_that_are_lost_or_change_places() -> None:
    two = [Attempt(0, 0, name="SGD"), Attempt(1, 1, name="Adam"), Attempt(2, 0, name="SGD")]
    told, causes = structure.differences(run(two), native(two[:2]))
    assert told == ["optimizer 0 (SGD): 2 steps in the original, 1 in the migrated program"]
    assert causes
    told, _ = structure.differences(run(two), native([two[0], two[2]]))
    assert told == ["optimizer 1 (Adam): 1 steps in the original, 0 in the migrated program"]
    order = [replace(two[1], window=0), replace(two[0], window=1), two[2]]
    told, causes = structure.differences(run(two), native(order))
    assert told == ["step 0: optimizer 0 steps in the original, 1 in the migrated program"]
    assert causes


def test_parameters_that_get_no_gradient_any_more() -> None:
    one, other = steps(2, with_grad=4), steps(2, with_grad=3)
    told, causes = structure.differences(run(one), native(other))
    assert told == ["step 0: 4 parameters have a gradient in the original, 3 in the migrated program"]
    assert len(causes) == 2
    for side in (one, other):
        skipped = [replace(a, skipped=True) for a in side]
        pair = (skipped, other) if side is one else (one, skipped)
        assert structure.differences(run(pair[0]), native(pair[1])) == ([], [])


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ((1.0,), (1.01,), None),
        ((50.0,), (49.0,), None),
        ((1.0,), (1.03,), 0),
        ((1.0,), (-1.0,), 0),
        ((1.0, 2.0), (1.0,), None),
        ((0.0,), (1e-8,), None),
        ((0.0,), (1e-6,), 0),
        ((1.0, 1.0), (1.0, 2.0), 0),
    ],
)
def test_other_batches(one: tuple[float, ...], other: tuple[float, ...], differ: int | None) -> None:
    assert structure.batches_differ([Attempt(0, inputs=one)], [Attempt(0, inputs=other)]) == differ


def test_the_first_batch_that_differs_is_named() -> None:
    one = [Attempt(0, inputs=(1.0,)), Attempt(1, inputs=(2.0,)), Attempt(2, inputs=(3.0,))]
    other = [one[0], Attempt(1, inputs=(2.5,)), Attempt(2, inputs=(9.0,))]
    assert structure.batches_differ(one, other) == 1


# -- precision -------------------------------------------------------------------------------------------------------


def census(level: str | None = None, evaluation: bool = True, **kinds: dict[str, int]) -> Recording:
    tables = {"train": kinds, "eval": kinds} if evaluation else {"train": kinds}
    return run([], level=level, census=tables)


HALF, FULL, BRAIN = {"float16": 100}, {"float32": 100}, {"bfloat16": 100}


def test_the_same_operations_in_half_agree() -> None:
    found = precision.judge(census("O1", linear=HALF, softmax=FULL), census(linear=HALF, softmax=FULL))
    assert found.status == "agrees"
    assert found.summary == "training and evaluation: half for linear; fp32 for softmax"
    assert not found.announced


def test_where_evaluation_computes_otherwise_it_is_told_apart() -> None:
    """A program that trains in float32 and sets Apex up for its predictions alone."""
    tables = {"train": {"linear": FULL, "mse_loss": FULL}, "eval": {"linear": HALF}}
    found = precision.judge(run([], level="O1", census=tables), run([], census=tables))
    assert (
        found.summary
        == "training: half for nothing; fp32 for linear, mse_loss. Evaluation: half for linear; fp32 for nothing"
    )


def test_an_evaluation_that_was_not_seen_is_told() -> None:
    found = precision.judge(census("O1", False, linear=HALF), census(None, False, linear=HALF))
    assert found.status == "agrees"
    assert "no evaluation ran" in found.announced[0]


def test_a_forward_outside_the_region() -> None:
    found = precision.judge(census("O1", linear=HALF), census(linear=FULL))
    assert found.status == "disagrees"
    assert found.evidence == [
        "evaluation: linear computes in half 0% of the time, in the original 100%",
        "training: linear computes in half 0% of the time, in the original 100%",
    ]
    assert any("evaluation stands outside" in c for c in found.causes)
    assert any("a forward or loss stands outside" in c for c in found.causes)
    alone = precision.judge(census("O1", False, linear=HALF), census(None, False, linear=FULL))
    assert not any("evaluation stands outside" in c for c in alone.causes)
    assert any("a forward or loss stands outside" in c for c in alone.causes)


def test_an_island_that_was_lost() -> None:
    found = precision.judge(census("O1", linear=FULL), census(linear=HALF))
    assert found.status == "disagrees"
    assert any("fp32 island" in c for c in found.causes)


def test_a_share_within_the_tolerance_agrees() -> None:
    mostly = {"float16": 99, "float32": 1}
    assert precision.judge(census("O1", linear=HALF), census(linear=mostly)).status == "agrees"
    less = {"float16": 97, "float32": 3}
    assert precision.judge(census("O1", linear=HALF), census(linear=less)).status == "disagrees"


def test_what_the_lists_of_apex_had_otherwise_is_announced() -> None:
    found = precision.judge(census("O1", gelu=FULL), census(gelu=HALF))
    assert found.status == "agrees"
    assert any("computes gelu in fp32" in a for a in found.announced)
    found = precision.judge(census("O1", softmax=HALF), census(softmax=FULL))
    assert found.status == "agrees"
    assert any("only as a function it knew" in a for a in found.announced)
    assert precision.judge(census("O1", softmax=FULL), census(softmax=HALF)).status == "disagrees"


@pytest.mark.parametrize("kind", "gelu std/var attention einsum tensordot inner chain_matmul rnn".split())
def test_every_kind_that_apex_kept_in_float32(kind: str) -> None:
    found = precision.judge(census("O1", **{kind: FULL}), census(**{kind: HALF}))
    assert found.status == "agrees"
    assert len(found.announced) == 2


BY_NAME = (
    "softmax log_softmax layer_norm group_norm rms_norm exp log pow prod cumsum nll_loss mse_loss smooth_l1_loss "
    "huber_loss bce_with_logits"
)


@pytest.mark.parametrize("kind", BY_NAME.split())
def test_every_kind_that_apex_knew_by_name_only(kind: str) -> None:
    found = precision.judge(census("O1", **{kind: HALF}), census(**{kind: FULL}))
    assert found.status == "agrees"
    assert all("only as a function it knew" in a for a in found.announced)


@pytest.mark.parametrize("kind", "linear matmul conv einsum tensordot inner chain_matmul".split())
def test_every_product_stays_in_half_after_half_weights(kind: str) -> None:
    assert precision.judge(census("O2", **{kind: HALF}), census(**{kind: FULL})).status == "disagrees"
    assert precision.judge(census("O3", **{kind: HALF}), census(**{kind: FULL})).status == "disagrees"


def test_verdicts_have_the_names_that_reports_look_for() -> None:
    assert (scale.NAME, precision.NAME, curve.NAME) == ("scale", "precision", "loss curve")


def test_what_follows_its_input_follows_an_announced_difference() -> None:
    found = precision.judge(census("O1", gelu=FULL, batch_norm=FULL), census(gelu=HALF, batch_norm=HALF))
    assert found.status == "agrees"
    assert any("the dtype the operation before it left" in a for a in found.announced)
    assert precision.judge(census("O1", batch_norm=FULL), census(batch_norm=HALF)).status == "disagrees"
    inputs = precision.judge(census("O1", gelu=FULL, softmax_input=FULL), census(gelu=HALF, softmax_input=HALF))
    assert inputs.status == "agrees"
    assert precision.judge(census("O1", gelu=HALF, relu=FULL), census(gelu=FULL, relu=HALF)).status == "disagrees"


def test_half_weights_ran_all_but_products_otherwise() -> None:
    found = precision.judge(census("O2", linear=HALF, softmax=HALF), census(linear=HALF, softmax=FULL))
    assert found.status == "agrees"
    assert "Apex O2 ran on half weights" in found.announced[0]
    assert any("where Apex had half weights" in a for a in found.announced)
    found = precision.judge(census("O2", linear=HALF), census(linear=FULL))
    assert found.status == "disagrees"
    found = precision.judge(census("O2", linear=FULL), census(linear=HALF))
    assert found.causes == [precision.NOT_GIVEN] * 2


def test_half_weights_by_hand() -> None:
    found = precision.judge(census(None, linear=HALF, relu=HALF), census(linear=HALF, relu=FULL))
    assert found.status == "agrees"
    assert found.announced[0].startswith("the original ran on half weights")
    some = census(None, linear=HALF, relu={"float16": 1, "float32": 9})
    assert precision.computes_in_half(some)
    assert not precision.computes_in_half(census(None, linear=FULL))
    regions = replace(census(None, linear=HALF, relu=HALF), end={"autocast": ["float16"]})
    assert precision.judge(regions, census(linear=HALF, relu=FULL)).status == "disagrees"


def test_a_phase_that_was_lost() -> None:
    found = precision.judge(census("O1", linear=HALF), census(None, False, linear=HALF))
    assert found.evidence == ["evaluation ran in the original and not in the migrated program"]


def test_nothing_of_known_dtype() -> None:
    assert precision.judge(census("O1"), census()).status == "unjudged"


def test_another_half_format() -> None:
    found = precision.judge(census("O1", linear=HALF), census(linear=BRAIN))
    assert found.status == "disagrees"
    assert found.evidence[-1] == "evaluation: linear in bfloat16, in the original in float16"
    assert "bfloat16 in place of float16" in found.causes[0]
    asked = precision.judge(census("O1", linear=HALF), census(linear=BRAIN), "bfloat16")
    assert asked.status == "agrees"
    assert precision.ASKED["bfloat16"] in asked.announced
    missed = precision.judge(census("O1", linear=HALF), census(linear=HALF), "bfloat16")
    assert missed.evidence[0] == "evaluation: bfloat16 was asked for; the migrated program computes linear in float16"
    worse = precision.judge(census("O1", linear=HALF, conv=FULL), census(linear=BRAIN, conv=HALF))
    assert "bfloat16 in place of float16" in worse.causes[0]
    assert worse.evidence[0].endswith("linear in bfloat16, in the original in float16")
    assert any("fp32 island" in c for c in worse.causes)
    beside = precision.judge(census("O1", linear=BRAIN), census(linear=BRAIN), "float16")
    assert beside.status == "agrees"


def test_a_backward_inside_of_a_region() -> None:
    inside = census(linear=HALF)
    inside.attempts = [Attempt(0, backwards=[backward()]), Attempt(1, backwards=[backward(autocast=True)])]
    found = precision.judge(census("O1", linear=HALF), inside)
    assert found.evidence == ["step 1: backward runs inside an autocast region"]
    before = census("O1", linear=HALF)
    before.attempts = inside.attempts
    assert precision.judge(before, inside).status == "agrees"


def test_weights_that_were_left_in_half() -> None:
    one, other = census("O1", linear=HALF), census(linear=HALF)
    one.attempts, other.attempts = [Attempt(0, dtypes=("float32",))], [Attempt(0, dtypes=("float16",))]
    found = precision.judge(one, other)
    assert found.evidence == ["the optimizer holds float16 weights; in the original float32"]
    found = precision.judge(replace(one, attempts=other.attempts), replace(other, attempts=one.attempts))
    assert found.status == "agrees"
    assert any("updated half weights" in a for a in found.announced)
    assert precision.judge(replace(one, attempts=other.attempts), other).status == "agrees"


# -- what is known ---------------------------------------------------------------------------------------------------


def test_a_clip_of_scaled_gradients_is_a_defect_of_the_original() -> None:
    clipped = [Attempt(0, clips=[Clip("norm", 1.0, 2.0, scaled=True)])]
    assert "clips inside `scale_loss`" in known.defects(run(clipped))[0]
    clipped = [Attempt(0, clips=[Clip("norm", 1.0, 2.0)])]
    assert known.defects(run(clipped)) == []


def test_a_step_that_is_skipped_too_late() -> None:
    attempts = [Attempt(i, backwards=[backward()]) for i in range(4)]
    attempts[2] = Attempt(2, late=True, skipped=True, backwards=[backward(), backward()])
    assert [a.window for a in known.late(run(attempts))] == [2]
    assert known.defects(run(attempts))[0].startswith("step 2: after an overflow")
    attempts[2] = replace(attempts[2], backwards=[backward()])
    assert known.late(run(attempts)) == []
    attempts[2] = replace(attempts[2], optimizer=1, backwards=[backward(), backward()])
    assert known.late(run(attempts)) == []


@pytest.mark.parametrize(
    ("zeroed", "said"),
    [
        ({}, "never calls `zero_grad`"),
        ({"module": 3}, "`model.zero_grad()` only"),
        ({"optimizer": 3, "module": 3}, ""),
        ({"optimizer": 3}, ""),
    ],
)
def test_gradients_that_o2_clears_itself(zeroed: dict[str, int], said: str) -> None:
    found = known.defects(run(steps(2), level="O2", end={"zero_grads": zeroed}))
    assert len(found) == bool(said)
    assert said in " ".join(found)
    assert known.defects(run(steps(2), level="O1", end={"zero_grads": zeroed})) == []


def test_a_scale_by_hand() -> None:
    plain = [replace(a, backwards=[backward(128.0, 1.0, scaler=None)]) for a in steps(3)]
    scaled = [replace(a, backwards=[backward(1.0, 128.0)]) for a in steps(3)]
    assert known.by_hand(run(plain, level=None), native(scaled)) == 128.0
    assert known.by_hand(run(scaled), native(scaled)) is None
    mixed = [*plain, replace(scaled[0], window=3)]
    assert known.by_hand(run(mixed, level=None), native(scaled)) is None
    assert known.by_hand(run([]), native(scaled)) is None
    assert known.by_hand(run(plain, level=None), native(plain)) is None
    other = [replace(a, backwards=[backward(1.0, 64.0)]) for a in steps(3)]
    assert known.by_hand(run(plain, level=None), native(other)) is None
    assert known.by_hand(run(plain, level=None), native(scaled[:2])) == 128.0
    assert known.by_hand(run(plain, level=None), native(scaled[:1])) == 128.0
    nearly = [replace(a, backwards=[backward(1.0 / 1.01, 128.0)]) for a in steps(3)]
    assert known.by_hand(run(plain, level=None), native(nearly)) == 128.0
    once = [replace(a, backwards=[backward(1.0, 1.0, scaler=None)]) for a in steps(3)]
    ones = [replace(a, backwards=[backward(1.0, 1.0)]) for a in steps(3)]
    assert known.by_hand(run(once, level=None), native(ones)) is None


def test_a_recording_as_if_it_had_been_scaled() -> None:
    plain = [Attempt(0, backwards=[backward(128.0, 1.0, scaler=None, scalings=0)])]
    found = known.divided(run(plain, level=None), 128.0)
    (one,) = found.attempts[0].backwards
    assert (one.loss, one.scale, one.scaler, one.scalings, one.tracker) == (1.0, 128.0, 0, 1, None)
    (rules,) = scale.rules(found)
    assert (rules.scaled, rules.dynamic, rules.backs_off, rules.start) == (True, False, False, 128.0)
    assert found.scalers[0]["dynamic"] is False
    assert found.scalers[0]["enabled"] is True


# -- cost, several ranks, causes -------------------------------------------------------------------------------------


def test_what_a_step_costs() -> None:
    seconds = [9.0, 9.0, 9.0, 2.0, 4.0, 6.0]
    one = run([replace(a, seconds=s, memory=10 * i) for i, (a, s) in enumerate(zip(steps(6), seconds, strict=True))])
    other = replace(one, attempts=[replace(a, seconds=2.0) for a in one.attempts], output="acc 71\nAccuracy: 72.5%\n")
    rows = cost.table({"original": one, "migrated": other, "nothing": run([])})
    assert [r["seconds_per_step"] for r in rows] == [4.0, 2.0, None]
    assert [r["speed_up"] for r in rows] == [1.0, 2.0, None]
    assert [r["peak_bytes"] for r in rows] == [50, 50, None]
    assert [r["final_loss"] for r in rows] == [1.0, 1.0, None]
    assert [r["accuracy"] for r in rows] == [None, "72.5%", None]
    captured = replace(one, attempts=[replace(a, captured=True) for a in one.attempts])
    assert cost.table({"captured": captured})[0]["seconds_per_step"] is None


@pytest.mark.parametrize(
    ("statuses", "worst", "rank"),
    [
        (("agrees", "disagrees", "unjudged"), "disagrees", 1),
        (("agrees", "unjudged"), "unjudged", 1),
        (("agrees", "skipped"), "agrees", 0),
    ],
)
def test_the_worst_rank_speaks_for_all(statuses: tuple[Status, ...], worst: str, rank: int) -> None:
    verdicts = [
        Verdict("scale", s, f"it {s}", [f"seen {i}"], ["cause"], ["known"], {"of": i}) for i, s in enumerate(statuses)
    ]
    found = merge(verdicts)
    assert (found.status, found.summary) == (worst, f"rank {rank}: it {worst}")
    assert found.evidence == [f"rank {i}: seen {i}" for i in range(len(statuses))]
    assert (found.causes, found.announced, found.data) == (["cause"], ["known"], {"of": 0})


def test_ranks_that_say_the_same() -> None:
    one = Verdict("scale", "agrees", "equal")
    assert merge([one]) is one
    assert merge([one, Verdict("scale", "agrees", "equal")]).summary == "all 2 ranks: equal"


def test_the_cause_of_an_error() -> None:
    assert failure_causes("RuntimeError: unscale_() has already been called on this optimizer") == [
        "`scaler.unscale_` runs twice in one step, or update is missing"
    ]
    assert failure_causes("No module named 'apex'") == ["an import of Apex was left behind"]
    assert failure_causes("KeyError: 'x'") == []
