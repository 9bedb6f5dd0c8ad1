"""Loops over optimizers that may leave out each of them: the scale is updated where one was stepped, as update() raises without."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.rules.trained import check_trained

PROGRAM = """
def late(optimizer, number):
    return optimizer.param_groups[0]["lr"] > 0.15 and number < 4 or number < 2


model = torch.nn.ModuleList([build(), build()])
optimizers = [torch.optim.SGD(m.parameters(), lr=lr) for m, lr in zip(model, (0.1, 0.2))]
model, optimizers = amp.initialize(model, optimizers, opt_level="O1")
for number, (x, y) in enumerate(loader):
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = sum(criterion(m(x), y) for m in model)
    with amp.scale_loss(loss, optimizers) as scaled_loss:
        scaled_loss.backward()
    for optimizer in optimizers:
        STEP
    seen.append(sum(p.detach().norm() for p in model.parameters()))
"""
NOTED = "        scaler.step(optimizer)\n        stepped = True\n    if stepped:\n        scaler.update()\n"


def trained(step: str) -> str:
    return check_trained(PROGRAM.replace("STEP", indent(step, "        ").strip()))


@pytest.mark.parametrize(
    "step",
    [
        "if late(optimizer, number):\n    continue\noptimizer.step()",
        "start = 2 if optimizer.param_groups[0]['lr'] < 0.15 else 4\nif number < start:\n    continue\noptimizer.step()",
        "if number < 2:\n    break\nif late(optimizer, number):\n    continue\noptimizer.step()",
    ],
)
def test_an_update_where_one_was_stepped(step: str) -> None:
    after = trained(step)
    assert "    stepped = False\n    for optimizer in optimizers:\n" in after
    assert NOTED in after


def test_a_step_under_a_test_of_each() -> None:
    after = trained("if not late(optimizer, number):\n    optimizer.step()")
    assert "            scaler.step(optimizer)\n            stepped = True\n    if stepped:\n" in after


def test_steps_in_branches_of_which_one_makes_none() -> None:
    step = (
        "if number < 2:\n    pass\nelif optimizer is optimizers[0]:\n    optimizer.step()\nelse:\n    optimizer.step()"
    )
    after = trained(step)
    assert after.count("stepped = True") == 2
    assert after.count("scaler.update()") == 1


@pytest.mark.parametrize(
    "step",
    [
        "optimizer.step()",
        "if late(optimizer, number):\n    optimizer.step()\nelse:\n    optimizer.step()",
        "optimizer.step()\nif late(optimizer, number):\n    continue\nseen.append(number)",
    ],
)
def test_nothing_is_noted_where_every_turn_steps(step: str) -> None:
    after = trained(step)
    assert "stepped" not in after
    assert "\n    scaler.update()\n" in after


def test_a_name_that_the_program_has_is_not_taken() -> None:
    step = "stepped = late(optimizer, number)\nif stepped:\n    continue\noptimizer.step()"
    after = trained(step)
    assert "any_stepped = True\n    if any_stepped:\n" in after


def test_a_list_of_steps_that_may_be_empty() -> None:
    steps = "    for optimizer in optimizers:\n        STEP\n"
    assert steps in PROGRAM
    after = check_trained(PROGRAM.replace(steps, "    [o.step() for o in optimizers if not late(o, number)]\n"))
    assert "stepped = [scaler.step(o) for o in optimizers if not late(o, number)]\n    if stepped:\n" in after
