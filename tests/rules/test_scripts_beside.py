"""A script beside the program that sets Apex up, which makes a network of the same class: nothing was cast in it."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite_files

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.encoder(x)


def fill(part, other):
    part.weight = other.weight
"""
TRAIN = """
import torch
from apex import amp
from net import Net, fill


def main(loader, old):
    model = Net().cuda()
    fill(model.encoder, old)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
PLOT = """
import argparse
import sys

import torch
from net import Net, fill

parser = argparse.ArgumentParser()
parser.add_argument("--path")
READ
model = Net().cuda()
fill(model.encoder, torch.load(args.path))
with torch.no_grad():
    for x in torch.load("data.pt"):
        points = model.encoder(x)
        print(points.cpu().numpy())
"""


@pytest.mark.parametrize(
    "read",
    [
        "args = parser.parse_args()",
        "if len(sys.argv) == 1:\n    args = parser.parse_args(['--path', 'a.pt'])\nelse:\n    args = parser.parse_args()",
        "try:\n    args, rest = parser.parse_known_args()\nexcept SystemExit:\n    sys.exit(1)",
        "args = argparse.Namespace(**vars(parser.parse_args()))",
    ],
)
def test_it_stays_as_it_is_however_it_reads_the_command_line(read: str) -> None:
    files = {"net.py": NET, "train.py": TRAIN, "plot.py": PLOT.replace("READ", read)}
    results = rewrite_files({path: textwrap.dedent(text).lstrip() for path, text in files.items()})
    assert "torch.autocast(" in (results["train.py"].after or "")
    assert ".forward = " not in (results["train.py"].after or "")
    assert "plot.py" not in results or results["plot.py"].after in (None, results["plot.py"].before)
    assert "plot.py" not in results or not results["plot.py"].findings
