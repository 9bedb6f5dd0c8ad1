"""A script that imports a name and then defines it itself runs its own."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

TRAIN = """
import argparse
import torch
from apex import amp


def evaluate(model, loader):
    with torch.no_grad():
        return [model(x).argmax(1) for x, _ in loader]


def main(model, loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    args = parser.parse_args()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        evaluate(model, loader)
"""
OTHER = """
import torch
from train import evaluate

HEAD


def evaluate(model, loader):
    return [model(x) for x, _ in loader]


def run(model, loader):
    return evaluate(model, loader)
"""


@pytest.mark.parametrize("head", ["", "print(evaluate)"])
def test_the_other_script_is_left_alone(head: str) -> None:
    found = rewrite_files({"train.py": TRAIN, "other.py": OTHER.replace("HEAD", head)})
    assert "torch.autocast" in (found["train.py"].after or "")
    assert found["other.py"].after is None
    assert not [f for f in found["train.py"].findings if f.code == "AMP220" and "other.py" in f.message]


def test_one_that_defines_it_only_in_a_branch_may_run_either() -> None:
    other = OTHER.replace("HEAD", "import sys").replace(
        "def evaluate(model, loader):\n    return [model(x) for x, _ in loader]",
        "if len(sys.argv) > 3:\n    def evaluate(model, loader):\n        return [model(x) for x, _ in loader]",
    )
    found = rewrite_files({"train.py": TRAIN, "other.py": other})
    said = [f.message for r in found.values() for f in r.findings if f.code in ("AMP220", "AMP531")]
    assert found["other.py"].after is not None or said
