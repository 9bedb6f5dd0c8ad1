"""A network that is called by what a container, a choice or a method kept as a value gives stands in a region."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """\
import random
import torch
import torch.nn.functional as F
from apex import amp

model = torch.nn.Linear(4, 3).cuda()
other = torch.nn.Linear(4, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


def train(loader):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


def evaluate(loader):
    model.eval()
    for x, _ in loader:
        GIVEN
        print(RUN.softmax(1))


train(data())
evaluate(data())
"""


def evaluation(given: str, run: str) -> str:
    after = rewrite(PROGRAM.replace("GIVEN", given).replace("RUN", run)).after or ""
    return after[after.index("def evaluate") :]


@pytest.mark.parametrize(
    ("given", "run"),
    [
        ("nets = dict(a=model)", 'nets.get("a")(x)'),
        ("nets = {'a': model}", 'nets.pop("a")(x)'),
        ("nets = {}", 'nets.get("a", model)(x)'),
        ("net = dict(a=model).get('a')", "net(x)"),
        ("nets = dict(zip('ab', [model, other]))", "nets['a'](x)"),
        ("net = random.choice([model, other])", "net(x)"),
        ("run = model.forward", "run(x)"),
        ("run = model.__call__", "run(x)"),
    ],
)
def test_it_runs_there(given: str, run: str) -> None:
    assert f"dtype=torch.float16):\n            print({run}.softmax(1))" in evaluation(given, run)


@pytest.mark.parametrize(
    ("given", "run"),
    [
        ("turns = dict(a=torch.sin)", 'turns.get("a")(x)'),
        ("turn = random.choice([torch.sin, torch.cos])", "turn(x)"),
        ("pairs = dict(zip([model], [torch.sin]))", "pairs[model](x)"),
    ],
)
def test_functions_are_no_networks(given: str, run: str) -> None:
    assert "autocast" not in evaluation(given, run)
