"""Command-line options that a variable keeps for what went with Apex, and options of other programs by the same name."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

KEPT = """
import argparse
import torch
from apex import amp
from project import Net, batches

def train(path, talk):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=talk)
    for x in batches:
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--talk", type=int, default=1)
    args = parser.parse_args()
    talk = args.talk
    {use}
    train("out", talk=talk)
"""
OTHER = """
import argparse
import torch
from project import Net, batches

parser = argparse.ArgumentParser()
parser.add_argument("--talk", type=int, default=1)
args = parser.parse_args()
print([Net()(x) for x in batches] * args.talk)
"""
NET = """
import torch

batches = []

class Net(torch.nn.Module):
    pass
"""


@pytest.mark.parametrize(("use", "told"), [("pass", True), ("print(talk + 1)", False)])
def test_an_option_that_a_variable_keeps_for_a_parameter_which_goes(use: str, told: bool) -> None:
    """Whatever other programs do with an option of their own by the same name."""
    results = rewrite_files({"train.py": KEPT.format(use=use), "evaluate.py": OTHER, "project.py": NET})
    said = {f.code: f.message for f in results["train.py"].findings}
    assert said["AMP125"] == "train takes talk no more: nothing reads it now"
    assert said.get("AMP119") == ("--talk is kept, but nothing reads it any more: no effect" if told else None)
    assert not results["evaluate.py"].findings
