"""The limit that FusedAdam clipped to inside of its step is the one of when it was made: AMP704 where that changes."""

from __future__ import annotations

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import rewrite
from tests.rules.programs import found
from tests.rules.test_inner_clip import FACTORY

CHANGED = """
import argparse
import torch
from torch import nn
from apex.contrib.optimizers import FP16_Optimizer, FusedAdam

START = 1.0


def wrapped(groups, limit):
    optimizer = FusedAdam(groups, lr=0.1, max_grad_norm=limit)
    return FP16_Optimizer(optimizer, dynamic_loss_scale=True)


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--norm", type=float, default=1.0)
    args = parser.parse_args([])
    args.norm = args.norm * 2
    return args


class Worker:
    def __init__(self, net, args):
        self.net, self.args = net, args
        self.limit = START
        limit = START
        if args.norm > 3:
            limit = 3.0
        self.optimizer = wrapped(net.parameters(), LIMIT)
        AFTER

    def learn(self, x):
        loss = self.net(x.half()).float().sum()
        self.optimizer.backward(loss)
        self.optimizer.step()
        self.net.zero_grad()

    def ease(self):
        LATER


def main():
    args = options()
    net = nn.Linear(8, 2)
    net.half().cuda()
    worker = Worker(net, args)
    for _ in range(3):
        worker.learn(torch.ones(2, 8))
        worker.ease()


main()
"""


def with_limit(limit: str, after: str = "pass", later: str = "pass") -> FileResult:
    return rewrite(CHANGED.replace("LIMIT", limit).replace("AFTER", after).replace("LATER", later))


@pytest.mark.parametrize("limit", ["self.limit", "args.norm", "self.args.norm", "START"])
def test_a_limit_that_is_set_before_the_optimizer_is_made_stays_that(limit: str) -> None:
    result = with_limit(limit)
    assert result.after is not None, result.findings
    assert found(result, "AMP704")[0].status == "note"


@pytest.mark.parametrize(
    ("limit", "after", "later"),
    [
        ("self.limit", "self.limit = 2.0", "pass"),
        ("self.limit", "pass", "self.limit *= 2"),
        ("args.norm", "args.norm = 5.0", "pass"),
        ("args.norm", "pass", "self.args.norm = 5.0"),
        ("self.args.norm", "pass", "setattr(self.args, 'norm', 5.0)"),
        ("START", "pass", "global START\n        START = 2.0"),
    ],
)
def test_a_limit_that_is_another_at_the_step_is_refused(limit: str, after: str, later: str) -> None:
    result = with_limit(limit, after, later)
    assert result.after is None
    (told,) = found(result, "AMP704")
    assert "is given another value after that" in told.message


@pytest.mark.parametrize(("later", "refused"), [("pass", False), ("limit = 2.0", True)])
def test_a_variable_that_a_factory_is_given_is_that_of_then(later: str, refused: bool) -> None:
    made = f"wrapped(model.parameters(), limit)\n    {later}"
    result = rewrite(
        FACTORY.replace("THROUGH", "").replace("MADE", made).replace("model = nn", "limit = 1.0\n    model = nn")
    )
    assert (result.after is None) is refused
    assert any("is given another value after that" in f.message for f in found(result, "AMP704")) is refused
