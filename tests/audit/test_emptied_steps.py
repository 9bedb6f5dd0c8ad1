"""A step after another and zero_grad, with no backward between: the scaler raises, unless the step asks for a gradient."""

from __future__ import annotations

import pytest

from tests.audit.test_stepping import RIGHT, SCALED, said, verdicts

STEP = "scaler.step(optimizer)\nscaler.update()\n"
FIRST = "if x.sum() > 0:\n    {step}\n    optimizer.zero_grad()\n"
ASKED = (
    "if any(p.grad is not None for group in {of}.param_groups for p in group['params']):\n"
    "    scaler.step(optimizer)\n    scaler.update()\n"
)
BEFORE = SCALED + FIRST.format(step="optimizer.step()") + "optimizer.step()\noptimizer.zero_grad()\n"
AFTER = "scaler.scale(loss).backward()\n" + FIRST.format(step="scaler.step(optimizer); scaler.update()")


def test_a_step_that_comes_to_none_on_the_way_of_another_is_refused() -> None:
    found = said(BEFORE, f"{AFTER}{STEP}optimizer.zero_grad()\n")
    assert ["no gradient is left" in d.message for d in found if d.verdict == "refuse"] == [True]


def test_one_that_asks_for_a_gradient_is_not() -> None:
    assert not said(BEFORE, f"{AFTER}{ASKED.format(of='optimizer')}optimizer.zero_grad()\n")


def test_whatever_else_is_stepped_beside_it() -> None:
    beside = "from data import schedule\nother = torch.optim.SGD(head.parameters(), lr=0.1)\n"
    more = "schedule.step()\nother.zero_grad()\ncriterion(head(x), y).backward()\nother.step()\n"
    after = f"{AFTER}{ASKED.format(of='optimizer')}optimizer.zero_grad()\n"
    assert not [d for d in said(BEFORE + more, after + more, beside) if d.verdict == "refuse"]


@pytest.mark.parametrize("of", ["model.other", "optimizer.base"])
def test_one_that_asks_for_those_of_another_is(of: str) -> None:
    assert "refuse" in verdicts(BEFORE, f"{AFTER}{ASKED.format(of=of)}optimizer.zero_grad()\n")


@pytest.mark.parametrize(
    "more",
    [
        "if x.mean() > 0:\n    scaler.scale(criterion(model(x), y)).backward()\n",
        "for part in x:\n    scaler.scale(criterion(model(part), y)).backward()\n",
    ],
)
def test_where_a_backward_may_come_between_it_is_not_refused(more: str) -> None:
    before = more.replace("scaler.scale(", "with amp.scale_loss(").replace(
        ").backward()", ", optimizer) as s: s.backward()"
    )
    again = SCALED + "optimizer.step()\noptimizer.zero_grad()\n" + before + "optimizer.step()\noptimizer.zero_grad()\n"
    after = RIGHT + more + STEP + "optimizer.zero_grad()\n"
    assert "refuse" not in verdicts(again, after)
