"""Files that only other programs load than the one that sets Apex up: nothing of them ever ran in half precision (AMP531)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told

PREPARE = """
from apex import amp


def prepare(model, optimizer):
    return amp.initialize(model, optimizer, opt_level="O1")


def seed(number):
    print(number)
"""
STEPS = """
import torch


class Steps:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def train_step(self, x):
        loss = self.net(x).sum()
        loss.backward()
        self.opt.step()
"""
TRAIN = """
import torch
from apex import amp
from prepare import prepare
IMPORT


def main(loader):
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = prepare(model, optimizer)
    for x in loader:
        loss = model(x).sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main([])
"""
STACK = """
from framework import run
from prepare import seed
from steps import Steps

seed(3)
run(Steps)
"""
AFTER = TRAIN.replace("from apex import amp\n", "").replace("from prepare import prepare\n", "")
AFTER = AFTER.replace("    model, optimizer = prepare(model, optimizer)\n", "    scaler = torch.amp.GradScaler()\n")
AFTER = AFTER.replace(
    "        loss = model(x).sum()\n        with amp.scale_loss(loss, optimizer) as scaled_loss:\n"
    "            scaled_loss.backward()\n        optimizer.step()\n",
    '        with torch.autocast("cuda", dtype=torch.float16):\n            loss = model(x).sum()\n'
    "        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()\n",
)


@pytest.mark.parametrize(("imported", "verdicts"), [("", []), ("from steps import Steps", [(10, "look")])])
def test_what_the_training_script_does_not_load(imported: str, verdicts: list[tuple[int, str]]) -> None:
    before = {
        "prepare.py": PREPARE,
        "steps.py": STEPS,
        "train.py": TRAIN.replace("IMPORT", imported),
        "stack.py": STACK,
    }
    after = {"train.py": AFTER.replace("IMPORT", imported), "prepare.py": "def seed(number):\n    print(number)\n"}
    assert told(doubts_of(before, after), "AMP531") == verdicts


def test_a_file_that_may_be_loaded_by_its_name() -> None:
    imported = "import importlib, sys\nother = importlib.import_module(sys.argv[1])"
    before = {
        "prepare.py": PREPARE,
        "steps.py": STEPS,
        "train.py": TRAIN.replace("IMPORT", imported),
        "stack.py": STACK,
    }
    after = {"train.py": AFTER.replace("IMPORT", imported), "prepare.py": "def seed(number):\n    print(number)\n"}
    assert told(doubts_of(before, after), "AMP531") == [(10, "look")]
