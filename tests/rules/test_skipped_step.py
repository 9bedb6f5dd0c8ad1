"""Skipped steps that a program tells from the scheduler's counter on the optimizer."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_untouched, rewrite
from tests.rules.programs import APEX_LOOP, apex, found


def test_a_skipped_step_found_through_the_step_count_is_reported() -> None:
    result = rewrite(apex(APEX_LOOP + "if optimizer._step_count > 1:\n    scheduler.step()"))
    (finding,) = found(result, "AMP218")
    assert finding.review == "review"
    assert "_step_count" in finding.message


@pytest.mark.parametrize("kept", ["= 0", "= scheduler._step_count", "+= 1"])
def test_who_keeps_count_tells_nothing_from_it(kept: str) -> None:
    """As torch's schedulers do, and those that people copy from them."""
    result = rewrite(apex(APEX_LOOP + f"optimizer._step_count {kept}"))
    assert not found(result, "AMP218")
    assert result.changed


def test_the_counter_of_something_else_is_not_meant() -> None:
    assert not found(rewrite(apex(APEX_LOOP + "if scheduler._step_count > 1:\n    print(x)")), "AMP218")


def test_without_a_scaler_no_step_is_skipped() -> None:
    source = apex(APEX_LOOP + "if optimizer._step_count > 1:\n    scheduler.step()")
    assert not found(rewrite(source, dtype="bfloat16"), "AMP218")


def test_a_program_without_apex_is_left_alone() -> None:
    check_untouched("import torch\nprint(optimizer._step_count)  # apex\n")
