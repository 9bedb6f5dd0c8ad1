"""A scaled loss whose optimizer is its function's own, and that nothing steps: said as it is, AMP216."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from apex import amp
from apex.fp16_utils import FP16_Optimizer


def train(model, loader, mode):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    if mode == "half":
        model = model.half()
        optimizer = FP16_Optimizer(optimizer, static_loss_scale=128)
    elif mode == "amp":
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        optimizer.zero_grad()
        loss = model(x).sum()
        if mode == "full":
            loss.backward()
            optimizer.step()
        elif mode == "half":
            optimizer.backward(loss)
        else:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
{more}

train(torch.nn.Linear(3, 1).cuda(), data(), "amp")
"""


def refused(more: str = "") -> list[str]:
    result = rewrite(PROGRAM.format(more=more))
    return [f.message for f in result.findings if f.status == "manual" and f.code in ("AMP216", "AMP226")]


def test_that_nothing_steps_is_said() -> None:
    told = refused()
    assert told
    assert all(m.startswith("nothing steps optimizer after this backward") for m in told)


@pytest.mark.parametrize(
    "more", ["    return optimizer\n", "    model.optimizer = optimizer\n", "    elsewhere(optimizer)\n"]
)
def test_one_that_others_get_may_be_stepped_out_of_sight(more: str) -> None:
    assert not any(m.startswith("nothing steps") for m in refused(more))


def test_one_that_is_stepped_is_not_told_of() -> None:
    source = PROGRAM.format(more="").replace("            optimizer.step()\n", "        optimizer.step()\n")
    result = rewrite(source)
    assert not any(f.message.startswith("nothing steps") for f in result.findings)
