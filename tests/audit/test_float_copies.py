"""A copy of a model from before `amp.initialize` that runs under autocast now: told where O2 and O3 left it in float32."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
import argparse
from copy import deepcopy

import torch
from project import loader

class Average:
    def __init__(self, model):
        self.ema = COPIED

def train(args, model, optimizer, average):
    for x in loader:
        REGION:
            loss = model(x).mean()
        STEP
    chosen = average.ema if args.average else model
    test(args, chosen)

def test(args, model):
    for x in loader:
        REGION:
            print(model(x))

def main(args):
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    BEFORE
    SETUP
    AFTER
    train(args, model, optimizer, average)

parser = argparse.ArgumentParser()
parser.add_argument("--opt_level", default="O1")
main(parser.parse_args())
"""
SCALED = "with amp.scale_loss(loss, optimizer) as scaled:\n            scaled.backward()\n        optimizer.step()"
NATIVE = "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()"
MADE = "average = Average(model)"


@pytest.mark.parametrize(
    ("level", "copied", "before", "after", "said"),
    [
        ("args.opt_level", "deepcopy(model)", MADE, "pass", ", where they are asked for, and"),
        ('"O2"', "deepcopy(model)", MADE, "pass", "in float32, and"),
        ('"O1"', "deepcopy(model)", MADE, "pass", ""),
        ('"O2"', "deepcopy(model)", "pass", MADE, ""),
        ('"O2"', "model", MADE, "pass", ""),
    ],
)
def test_a_copy_from_before(level: str, copied: str, before: str, after: str, said: str) -> None:
    given = PROGRAM.replace("COPIED", copied).replace("BEFORE", before).replace("AFTER", after)
    was = given.replace("import torch\n", "import torch\nfrom apex import amp\n").replace("REGION", "if True")
    was = was.replace("SETUP", f"model, optimizer = amp.initialize(model, optimizer, opt_level={level})")
    now = given.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16, enabled=args.opt_level != "O0")')
    now = now.replace(
        "SETUP", 'global scaler\n    scaler = torch.amp.GradScaler("cuda", enabled=args.opt_level != "O0")'
    )
    messages = [
        d.message
        for d in doubts(was.replace("STEP", SCALED), now.replace("STEP", NATIVE))
        if "the copy made at line 10" in d.message
    ]
    assert len(messages) == bool(said)
    assert all(said in m for m in messages)
