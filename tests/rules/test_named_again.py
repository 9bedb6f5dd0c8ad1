"""What a program runs under another name, out of a table, or with arguments written out elsewhere, is run all the same."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

PROGRAM = """
import functools

import torch
from apex import amp
from library import batches, network


def train(fp16, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        loss = model(x).pow(2).mean()
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def evaluate(model, loader):
    with torch.no_grad():
        return [model(x).argmax() for x in loader]


def main(fp16):
    model = network()
    {call}
    return evaluate(model, batches())
"""
CALLS = {
    "plainly": "train(fp16, model, batches())",
    "by another name": "run = train\n    run(fp16, model, batches())",
    "out of a table": "phases = {'train': train}\n    phases['train'](fp16, model, batches())",
    "with its first arguments": "functools.partial(train, fp16)(model, batches())",
    "with arguments in a dict": "given = dict(fp16=fp16, model=model)\n    train(**given, loader=batches())",
    "with arguments in a tuple": "given = (fp16, model)\n    train(*given, batches())",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_evaluation_after_it_runs_as_it_did(call: str) -> None:
    """In half where mixed precision was set up: the model that is evaluated is the one that was given to the training."""
    result = rewrite(PROGRAM.replace("{call}", call))
    assert result.after is not None
    evaluation = result.after[result.after.index("def evaluate") : result.after.index("def main")]
    assert "torch.autocast(" in evaluation
    assert result.after.count("torch.autocast(") == 2
    assert not found(result, "AMP531")


@pytest.mark.parametrize(
    "call",
    [
        "given = dict(fp16=fp16, model=model)\n    given.clear()\n    train(**given, loader=batches())",
        "run = train\n    run = print\n    run(fp16, model, batches())",
    ],
)
def test_what_may_have_changed_is_not_taken_for_it(call: str) -> None:
    result = rewrite(PROGRAM.replace("{call}", call))
    assert result.after is None or result.after.count("torch.autocast(") == 1
