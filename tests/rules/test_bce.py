"""Binary cross entropy, which autocast refuses: its statement leaves the region, its forwards and inputs do not."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, check_rewrite
from tests.rules.programs import apex, native

MODEL = "model = build()\nbce = torch.nn.BCELoss()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
AUTOCAST = 'with torch.autocast("cuda", dtype=torch.float16):'
BACKWARD = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()"
SCALED = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss = bce(model(x), y)", f"{AUTOCAST}\n    output = model(x)\nloss = bce(output.float(), y)"),
        (
            "loss = bce(torch.sigmoid(model(x)), y)",
            f"{AUTOCAST}\n    output = model(x)\nloss = bce(torch.sigmoid(output.float()), y)",
        ),
        (
            "guess = torch.sigmoid(model(x))\nloss = bce(guess, y)",
            f"{AUTOCAST}\n    guess = torch.sigmoid(model(x))\nloss = bce(guess.float(), y)",
        ),
        (
            "parts = model(x)\nloss = bce(parts[0].view(-1), y)",
            f"{AUTOCAST}\n    parts = model(x)\nloss = bce(parts[0].float().view(-1), y)",
        ),
        (
            "guess = model(x)\none = bce(guess, y)\ntwo = criterion(guess, y)\nloss = one + two",
            f"{AUTOCAST}\n    guess = model(x).float()\none = bce(guess, y)\n{AUTOCAST}\n"
            "    two = criterion(guess, y)\n    loss = one + two",
        ),
    ],
)
def test_the_loss_stands_outside_of_the_region_on_float32(before: str, after: str) -> None:
    check_rewrite(apex(f"{before}\n{BACKWARD}", model=MODEL), native(f"{after}\n{SCALED}", model=MODEL))


def test_evaluation_is_taken_apart_too() -> None:
    tail = "with torch.no_grad():\n    for x, y in loader:\n        loss = bce(model(x), y)\n"
    after = tail.replace(
        "        loss = bce(model(x), y)\n",
        f"        {AUTOCAST}\n            output = model(x)\n        loss = bce(output.float(), y)\n",
    )
    check_rewrite(apex(model=MODEL, tail=tail), native(model=MODEL, tail=after))


def test_a_loss_deep_inside_a_region_is_left_to_a_person() -> None:
    loop = "guess = model(x)\nloss = criterion(guess, y)\nif y.any():\n    loss = loss + bce(guess, y)\n"
    loop += f"loss = loss + criterion(guess, x)\n{BACKWARD}"
    check_manual(apex(loop, model=MODEL), "AMP505")
