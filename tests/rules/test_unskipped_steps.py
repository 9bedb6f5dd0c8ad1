"""`loss_scalers[0]._unskipped`, by which programs step the scheduler only where the optimizer was stepped: AMP403."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.helpers import check_manual, rewrite

PROGRAM = """\
import torch
from apex import amp

class Args:
    fp16 = {fp16}
    level = {level}

args = Args()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.8)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
{setup}
rates = []
for factor in (1.0, float("inf"), 1.0):
    loss = (model(torch.ones(2, 4)).float() * factor / 4).mean()
    optimizer.zero_grad()
    {scaled}
    {above}
    optimizer.step()
    {asked}
    rates.append(scheduler.get_last_lr()[0])
"""
ALWAYS = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
SWITCHED = "if args.fp16:\n    model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)"
SCALED = "with amp.scale_loss(loss, optimizer) as scaled:\n        scaled.backward()"
EITHER = (
    "if args.fp16:\n        with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()\n"
    "    else:\n        loss.backward()"
)
ASKED = "if amp._amp_state.loss_scalers[0]._unskipped != 0:\n        scheduler.step()"
UNDER_SWITCH = "if not args.fp16 or amp._amp_state.loss_scalers[0]._unskipped != 0:\n        scheduler.step()"


def program(setup: str = ALWAYS, scaled: str = SCALED, asked: str = ASKED, **other: Any) -> str:
    given = {"above": "pass", "fp16": True, "level": '"O1"', **other}
    return PROGRAM.format(setup=setup, scaled=scaled, asked=asked, **given)


def rates_of(text: str) -> list[float]:
    space: dict[str, Any] = {"__name__": "train"}
    exec(compile(rewrite(text, device="cpu").after or "", "train.py", "exec"), space)
    return space["rates"]  # type: ignore[no-any-return]


def test_the_scheduler_waits_where_a_step_was_skipped() -> None:
    assert rates_of(program()) == [0.4, 0.4, 0.2]
    assert 'scaler.state_dict()["_growth_tracker"] != 0' in (rewrite(program()).after or "")


@pytest.mark.parametrize(
    ("fp16", "level", "expected"),
    [(True, "O1", [0.4, 0.4, 0.2]), (True, "O0", [0.4, 0.2, 0.1]), (False, "O1", [0.4, 0.2, 0.1])],
)
def test_a_scaler_that_is_off_skips_none(fp16: bool, level: str, expected: list[float]) -> None:
    assert rates_of(program(SWITCHED, EITHER, UNDER_SWITCH, fp16=fp16, level=repr(level))) == expected


def test_one_that_is_held_in_a_variable_is_read_alike() -> None:
    asked = "count = amp._amp_state.loss_scalers[0]._unskipped\n    if count:\n        scheduler.step()"
    assert rates_of(program(asked=asked)) == [0.4, 0.4, 0.2]


def test_before_the_step_a_scaler_does_not_know() -> None:
    assert check_manual(program(above=f"{ASKED}\n"), "AMP404")


def test_setting_it_is_left() -> None:
    assert check_manual(program(asked="amp._amp_state.loss_scalers[0]._unskipped = 0"), "AMP404")
