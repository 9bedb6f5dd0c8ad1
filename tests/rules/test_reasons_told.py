"""Reasons that are told where nothing runs the model, or where a function is run by what decorates it."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, rewrite_files
from tests.rules.programs import found

IDLE = """
import torch
import wandb
from apex import amp


def validate(model, loader, optimizer):
    model.eval()
    return [len(batch) for batch in loader]


def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    {seen}
    return validate(model, loader, optimizer)


main(wandb.config.model, wandb.config.loader)
"""


@pytest.mark.parametrize("seen", ["pass", "wandb.watch(model)"])
def test_what_is_given_a_model_and_does_not_call_it_is_named(seen: str) -> None:
    (told,) = found(check_manual(IDLE.format(seen=seen), "AMP502"), "AMP502")
    assert "what is given it does not call it (validate at train.py:15)" in told.message
    assert "watch" not in told.message


def test_what_may_run_it_out_of_sight_is_named_first() -> None:
    (told,) = found(check_manual(IDLE.format(seen="wandb.run(model)"), "AMP502"), "AMP502")
    assert "may run it, see train.py:14 (wandb.run)" in told.message


PROGRAM = """
import torch
from apex import amp


def train(model, optimizer, loader):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
HANDLER = """
import torch
from apex import amp
from events import handles


class Clips:
    {sign}
    def clip(self, trainer):
        torch.nn.utils.clip_grad_norm_(amp.master_params(trainer.kept), 1.0)


kept = [Clips()]
"""


@pytest.mark.parametrize("sign", ["@handles(1)", ""])
def test_a_function_that_something_decorates_is_not_said_to_go(sign: str) -> None:
    files = {"one.py": PROGRAM, "two.py": PROGRAM, "clips.py": HANDLER.replace("{sign}", sign)}
    (told,) = (f for f in rewrite_files(files)["clips.py"].findings if f.status == "manual")
    assert "nothing in sight calls Clips.clip" in told.message
    assert ("what decorates it (@handles(1))" in told.message) is bool(sign)
    assert ("delete it" in told.message) is not bool(sign)
