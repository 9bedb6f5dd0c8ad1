"""A network that is picked out of some runs in a region as it does under its own name."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from apex import amp

def main(args, model, optimizer, loader, held_out):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        optimizer.zero_grad()
        loss = model(x).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    evaluate(model, held_out, loss)

def evaluate(model, held_out, loss):
    {line}
    with torch.no_grad():
        for x in held_out:
            print({run})
"""


@pytest.mark.parametrize(
    ("line", "run"),
    [
        ("best = max([model], key=score)", "best(x)"),
        ("best = sorted([model], key=score)[-1]", "best(x)"),
        ("nets = [model]", "min(nets, key=score)(x)"),
        ("pass", "max([model], key=score)(x)"),
        ("pass", "[model][0](x)"),
    ],
)
def test_its_evaluation_has_a_region(line: str, run: str) -> None:
    after = rewrite(PROGRAM.format(line=line, run=run)).after or ""
    assert after.count("torch.autocast(") == 2


def test_the_larger_of_two_losses_is_no_network() -> None:
    line = "most = max(loss.item(), 0.0)"
    after = rewrite(PROGRAM.format(line=line, run="most")).after or ""
    assert after.count("torch.autocast(") == 1
