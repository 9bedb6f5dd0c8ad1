"""A function or a property that says whether Apex is installed is asked as the name itself is (AMP532)."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

PROGRAM = """
import torch
try:
    from apex import amp
except ImportError:
    amp = None

def installed():
    return amp is not None

class State:
    def __init__(self, net, optimizer, scaling=True):
        self.net = net
        self.optimizer = optimizer
        self.scaling = scaling

    {decorator}
    def mixed({own}):
        {body}

def build(net, optimizer):
    if amp is not None:
        net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
    return State(net, optimizer)

def main(net, optimizer, batches):
    state = build(net, optimizer)
    for x in batches:
        loss = state.net(x).mean()
        if {asked}:
            with amp.scale_loss(loss, state.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        state.optimizer.step()
        state.optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("decorator", "own", "body", "asked", "told"),
    [
        ("@property", "self", "return amp is not None", "state.mixed", False),
        ("@property", "self", '"""With Apex."""\n        return amp', "state.mixed", False),
        ("@staticmethod", "", "return amp is not None", "state.mixed()", False),
        ("@property", "self", "return None", "installed()", False),
        ("@property", "self", "return self.scaling", "state.mixed", True),
        ("@property", "self", "return self.mixed", "state.mixed", True),
    ],
)
def test_a_run_whose_loss_was_not_scaled(decorator: str, own: str, body: str, asked: str, told: bool) -> None:
    result = rewrite(PROGRAM.format(decorator=decorator, own=own, body=body, asked=asked))
    assert bool(found(result, "AMP532")) is told
