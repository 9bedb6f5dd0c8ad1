"""`zero_grad` after O2, whose step cleared the master gradients by itself."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import APEX_LOOP, NATIVE_LOOP, apex, found, initialize, native

WITHOUT = APEX_LOOP.replace("optimizer.zero_grad()\n", "")
NATIVE_WITHOUT = NATIVE_LOOP.replace("optimizer.zero_grad()\n", "")


@pytest.mark.parametrize("level", ["O2"])
def test_zero_grad_is_added_where_only_o2_s_step_cleared_the_gradients(level: str) -> None:
    before = apex(WITHOUT, initialize(f'opt_level="{level}"'))
    result = check_rewrite(before, native(NATIVE_WITHOUT + "optimizer.zero_grad()"))
    assert found(result, "AMP215")[0].review == "review"


def test_o1_without_zero_grad_accumulated_under_apex_and_a_scaler_forgets() -> None:
    result = check_rewrite(apex(WITHOUT), native(NATIVE_WITHOUT))
    (finding,) = found(result, "AMP224")
    assert "pile up" in finding.message
    assert finding.review == "look"


def test_only_a_step_that_is_repeated_without_zero_grad_is_told() -> None:
    assert not found(rewrite(apex(f"def train(x, y):\n{textwrap.indent(WITHOUT, '    ')}")), "AMP224")
    assert not found(rewrite(apex()), "AMP224")
    assert not found(rewrite(apex(WITHOUT, initialize('opt_level="O1", enabled=False'))), "AMP224")


@pytest.mark.parametrize(
    "clears", ["optimizer.zero_grad()", "model.zero_grad()", "optimizer.zero_grad(set_to_none=True)"]
)
def test_nothing_is_added_where_the_program_clears_gradients(clears: str) -> None:
    result = rewrite(apex(f"{clears}\n{WITHOUT}", initialize('opt_level="O2"')))
    assert result.after is not None
    assert result.after.count("zero_grad") == 1
    assert not found(result, "AMP215")


def test_nothing_is_added_where_gradients_are_set_to_none_by_hand() -> None:
    clears = "for p in model.parameters():\n    p.grad = None\n"
    result = rewrite(apex(clears + WITHOUT, initialize('opt_level="O2"')))
    assert result.after is not None
    assert "zero_grad" not in result.after


def test_o1_model_zero_grad_cleared_everything_so_nothing_is_said() -> None:
    result = rewrite(apex(f"model.zero_grad()\n{WITHOUT}"))
    assert not any("zero_grad" in f.message for f in result.findings)


def test_o2_model_zero_grad_left_the_masters_gradients_which_is_announced() -> None:
    result = rewrite(apex(f"model.zero_grad()\n{WITHOUT}", initialize('opt_level="O2"')))
    assert any("zero_grad" in f.message for f in result.findings if f.status == "note")
