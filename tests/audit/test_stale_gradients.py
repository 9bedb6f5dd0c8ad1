"""Gradients of a backward before an update: they may be cleared, and nothing else."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.audit.helpers import doubts

HEAD = """
import torch
{imports}
from data import loader, criterion

one, two = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
first = torch.optim.SGD(one.parameters(), lr=0.1)
second = torch.optim.SGD(two.parameters(), lr=0.1)
{setup}
for i, (x, y) in enumerate(loader):
"""
APEX = HEAD.format(
    imports="from apex import amp",
    setup="[one, two], [first, second] = amp.initialize([one, two], [first, second], opt_level='O1')",
)
NATIVE = HEAD.format(imports="", setup="scaler = torch.amp.GradScaler('cuda')")
SCALED = """
with amp.scale_loss(loss, [first, second]) as scaled_loss:
    scaled_loss.backward()
"""
LOSS = "loss = criterion(one(x) + two(x), y)\n"
REGION = "with torch.autocast('cuda', dtype=torch.float16):\n    loss = criterion(one(x) + two(x), y)\n"
STEPS = "first.step()\nif i % 2:\n    second.step()\n"
NATIVE_STEPS = "scaler.step(first)\nif i % 2:\n    scaler.step(second)\nscaler.update()\n"


def refused(before: str = "", after: str = "") -> list[str]:
    """What is said of the step under a condition, with something before the loss and after the steps of each turn."""
    old = APEX.lstrip("\n") + indent(before + LOSS + SCALED.lstrip("\n") + STEPS + after, "    ")
    new = NATIVE.lstrip("\n")
    new += indent(before + REGION + "scaler.scale(loss).backward()\n" + NATIVE_STEPS + after, "    ")
    return [d.message for d in doubts(old, new) if d.verdict == "refuse"]


CLEARED = {
    "before the loss": {"before": "first.zero_grad()\nsecond.zero_grad()\n"},
    "after the steps": {"after": "first.zero_grad()\nsecond.zero_grad()\n"},
    "by the models": {"after": "one.zero_grad()\ntwo.zero_grad()\n"},
    "where it was not stepped": {
        "before": "first.zero_grad()\n",
        "after": "if i % 2:\n    second.zero_grad()\nelse:\n    second.zero_grad()\n",
    },
}


@pytest.mark.parametrize("where", CLEARED.values(), ids=list(CLEARED))
def test_what_is_cleared_may_be_of_an_earlier_scale(where: dict[str, str]) -> None:
    assert not refused(**where)


LEFT = {
    "never cleared": {"before": "first.zero_grad()\n"},
    "cleared where it was stepped": {"before": "first.zero_grad()\n", "after": "if i % 2:\n    second.zero_grad()\n"},
    "another's cleared": {"after": "first.zero_grad()\none.zero_grad()\n"},
}


@pytest.mark.parametrize("where", LEFT.values(), ids=list(LEFT))
def test_what_is_added_to_and_stepped_is_not(where: dict[str, str]) -> None:
    (message,) = refused(**where)
    assert message.startswith("left with Apex") or "update() may change the scale" in message


def test_a_backward_that_is_not_seen_to_reach_them_adds_nothing() -> None:
    turn = "loss = criterion({0}(x), y)\nwith amp.scale_loss(loss, {1}) as scaled_loss:\n    scaled_loss.backward()\n{1}.step()\n"
    native = (
        "with torch.autocast('cuda', dtype=torch.float16):\n    loss = criterion({0}(x), y)\nscaler.scale(loss).backward()\n"
        "scaler.step({1})\nscaler.update()\n"
    )
    zero = "first.zero_grad()\nsecond.zero_grad()\n"
    old = APEX.lstrip("\n")
    old += indent(zero + turn.format("one", "first") + turn.format("two", "second"), "    ")
    new = NATIVE.lstrip("\n")
    new += indent(zero + native.format("one", "first") + native.format("two", "second"), "    ")
    assert not [d.message for d in doubts(old, new) if d.verdict == "refuse"]
