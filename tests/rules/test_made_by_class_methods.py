"""What a class method makes of its class: `return cls(model, args.fp16)` is an object of it, as the plain call is."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of
from tests.rules.helpers import check_files

ENGINE = """
import torch
from apex import amp

class Trainer:
    def __init__(self, model, fp16):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.fp16 = fp16
        if self.fp16:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="LEVEL")

    @classmethod
    def from_args(cls, model, args):
        return cls(model, args.fp16)

    def train(self, x, y):
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        if self.fp16:
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
"""
SCORE = """
import torch

def score(model, loader):
    total = 0.0
    for x, y in loader:
        with torch.no_grad():
            total += (model(x).float() - y).abs().mean().item()
    return total
"""
TRAIN = """
import argparse
import torch
from engine import Trainer
from util import score

def main(args, loader=()):
    model = torch.nn.Linear(4, 2).cuda()
    engine = MAKE
    for x, y in loader:
        engine.train(x, y)
    print(score(engine.model, loader))

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    main(parser.parse_args())
"""
MADE = ["Trainer(model, args.fp16)", "Trainer.from_args(model, args)"]


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("make", MADE)
def test_an_evaluation_elsewhere_gets_its_region_however_the_object_is_made(make: str, level: str) -> None:
    files = {"engine.py": ENGINE.replace("LEVEL", level), "util.py": SCORE, "train.py": TRAIN.replace("MAKE", make)}
    after = check_files(files)
    assert "torch.autocast" in after["util.py"]
    assert "score(engine.model, loader, engine.scaler)" in after["train.py"]


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("inside", [False, True])
def test_the_audit_tells_of_one_that_is_left_in_float32(make: str, inside: bool) -> None:
    files = {"engine.py": ENGINE.replace("LEVEL", "O1"), "util.py": SCORE, "train.py": TRAIN.replace("MAKE", make)}
    after = check_files(files)
    if not inside:
        after = {"engine.py": after["engine.py"]}
    told = [(d.path, d.verdict) for d in doubts_of(files, after) if d.code == "AMP531"]
    assert told == ([] if inside else [("util.py", "review")])


@pytest.mark.parametrize("make", MADE)
def test_a_model_made_before_the_set_up_is_not_made_anew(make: str) -> None:
    """It was handed to the object whose constructor sets it up, and is kept there under another name."""
    engine = ENGINE.replace('"LEVEL"', "self.fp16")
    files = {"engine.py": engine, "util.py": SCORE, "train.py": TRAIN.replace("MAKE", make)}
    files["train.py"] = files["train.py"].replace('action="store_true"', 'default=""')
    assert not [d for d in doubts_of(files, check_files(files)) if d.code == "AMP531"]
