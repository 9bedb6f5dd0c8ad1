"""A parameter that its function gives anew, by a helper that hands back what it was given: still the object of that call."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
import torch
{imports}

def decay(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.data.mul_(1 - group["lr"])
    return optimizer, group["lr"]

def train(model, other, first, second, loader{more}):
    for x in loader:
        first.zero_grad()
        second.zero_grad()
        {backward}
        first, lr = decay(first)
        {steps}
        other(x).sum().backward()
        second, _ = decay(second)
        {plain}

model, other = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
first = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.SGD(other.parameters(), lr=0.1)
{set_up}
train(model, other, first, second, load(){more})
"""
BEFORE = {
    "imports": "from apex import amp",
    "more": "",
    "backward": "with amp.scale_loss(model(x).sum(), first) as scaled:\n            scaled.backward()",
    "steps": "first.step()",
    "plain": "second.step()",
    "set_up": 'model, first = amp.initialize(model, first, opt_level="O1")',
}
AFTER = {
    "imports": "",
    "more": ", scaler",
    "backward": 'with torch.autocast("cuda", dtype=torch.float16):\n            loss = model(x).sum()\n'
    "        scaler.scale(loss).backward()",
    "steps": "scaler.step(first)\n        scaler.update()",
    "plain": "second.step()",
    "set_up": 'scaler = torch.amp.GradScaler("cuda")',
}


def said(**changed: str) -> list[str]:
    before, after = PROGRAM.format(**BEFORE), PROGRAM.format(**{**AFTER, **changed})
    return [d.message for d in doubts(before, after) if d.code == "AMP231"]


def test_two_optimizers_that_one_helper_gives_back_are_two() -> None:
    assert said() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": "first.step()\n        scaler.update()"},
        {"steps": "scaler.step(first)\n        scaler.step(first)\n        scaler.update()"},
        {"plain": "scaler.step(second)"},
        {"steps": "scaler.step(first)"},
    ],
)
def test_which_of_them_is_stepped_is_still_asked(wrong: dict[str, str]) -> None:
    assert said(**wrong) != []
