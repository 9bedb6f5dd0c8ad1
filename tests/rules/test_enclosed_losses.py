"""A loss that a function within the function computes, which it returns or leaves in a variable or a container of that."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """\
import torch
import torch.nn.functional as F
from apex import amp

model = torch.nn.Linear(4, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


def train(loader):
    loss, box, losses = None, {}, []
    for x, y in loader:
        out = model(x)

        def inner():
            DOES

        CALLED
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


train(data())
"""
REGION = '        with torch.autocast("cuda", dtype=torch.float16):\n            {}\n'


def written(does: str, called: str) -> str:
    program = PROGRAM.replace("DOES", does.replace("\n", "\n            "))
    return rewrite(program.replace("CALLED", called.replace("\n", "\n        "))).after or ""


@pytest.mark.parametrize(
    ("does", "called"),
    [
        ("return F.cross_entropy(out, y)", "loss = inner()"),
        ("nonlocal loss\nloss = F.cross_entropy(out, y)", "inner()"),
        ('box["loss"] = F.cross_entropy(out, y)', 'inner()\nloss = box["loss"]'),
        ("losses.append(F.cross_entropy(out, y))", "inner()\nloss = losses[0]"),
    ],
)
def test_the_call_stands_in_the_region(does: str, called: str) -> None:
    assert REGION.format(called.replace("\n", "\n            ")) in written(does, called)


def test_one_that_computes_no_loss_stands_outside() -> None:
    after = written("losses.append(x.shape)", "loss = F.cross_entropy(out, y)\ninner()")
    assert "\n        inner()" in after


def test_a_variable_of_its_own_is_none_of_the_function_around() -> None:
    after = written("loss = F.cross_entropy(x, y)\nprint(loss)", "loss = F.cross_entropy(out, y)\ninner()")
    assert "\n        inner()" in after
