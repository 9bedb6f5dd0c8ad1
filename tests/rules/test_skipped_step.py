"""Skipped steps that a program tells from the scheduler's counter on the optimizer."""

from __future__ import annotations

from tests.rules.helpers import check_untouched, rewrite
from tests.rules.programs import APEX_LOOP, apex, found


def test_a_skipped_step_found_through_the_step_count_is_reported() -> None:
    result = rewrite(apex(APEX_LOOP + "if optimizer._step_count > 1:\n    scheduler.step()"))
    (finding,) = found(result, "AMP218")
    assert finding.review == "review"
    assert "_step_count" in finding.message


def test_the_counter_of_something_else_is_not_meant() -> None:
    assert not found(rewrite(apex(APEX_LOOP + "if scheduler._step_count > 1:\n    print(x)")), "AMP218")


def test_without_a_scaler_no_step_is_skipped() -> None:
    source = apex(APEX_LOOP + "if optimizer._step_count > 1:\n    scheduler.step()")
    assert not found(rewrite(source, dtype="bfloat16"), "AMP218")


def test_a_program_without_apex_is_left_alone() -> None:
    check_untouched("import torch\nprint(optimizer._step_count)  # apex\n")
