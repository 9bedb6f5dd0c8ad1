"""A model that is made half in runs in which nothing is trained."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

PROGRAM = """
import argparse

import torch
from apex import amp


def build(cfg):
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if cfg.apex:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    elif cfg.half:
        model.half()
    return model, optimizer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--apex", action="store_true")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--train", action="store_true")
    cfg = parser.parse_args()
    model, optimizer = build(cfg)
    model.train()
    for x in [torch.zeros(2, 4).cuda()]:
        if ASKED:
            optimizer.zero_grad()
            loss = model(x).mean()
            if cfg.apex:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()


main()
"""


@pytest.mark.parametrize(("asked", "told"), [("not cfg.half", False), ("cfg.train", True), ("True", True)])
def test_it_is_told_only_where_a_run_does_both(asked: str, told: bool) -> None:
    result = rewrite(
        PROGRAM.replace("ASKED", asked).replace("    model.train()\n", "    params = list(model.parameters())\n")
    )
    assert result.after is not None
    assert bool(found(result, "AMP534")) is told
