"""A model of a class that a table holds, alone or in a tuple, made by the class or by a method of it that gives one: what its
forward computes that autocast refuses is computed without autocast."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from tests.rules.helpers import check_files, names_of

MODEL = """
import torch
from torch import nn
from torch.nn import BCELoss
from library import Pretrained

class Tagger(Pretrained):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, 3)
        self.squash = nn.Sigmoid()

    def forward(self, x, labels=None):
        scores = self.squash(self.layer(x))
        loss_function = BCELoss()
        loss = loss_function(scores, labels)
        return loss, scores

    @classmethod
    def load(cls, path):
        return cls(4)
"""
TRAIN = """
import argparse
import torch
from apex import amp
from model import Tagger

PLAIN = {"tagger": Tagger}
TUPLES = {"tagger": (int, Tagger, str)}

def train(args, batches, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    for x, y in batches:
        inputs = {"x": x, "labels": y}
        outputs = model(**inputs)
        loss = outputs[0]
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        optimizer.zero_grad()

def main(options, batches):
    parser = argparse.ArgumentParser()
    parser.add_argument("--level", default="O2")
    parser.add_argument("--kind", default="tagger")
    args = parser.parse_args(options)
    TAKEN
    model = MADE
    train(args, batches, model)
"""
TAKEN = [
    "kind = PLAIN[args.kind]",
    "_, kind, _ = TUPLES[args.kind]",
    "kind = TUPLES[args.kind][1]",
    "kind = TUPLES.get(args.kind)[1]",
]


class Pretrained(nn.Module):
    """What a library gives that makes networks of what was saved."""

    @classmethod
    def from_pretrained(cls, path: str) -> nn.Module:
        return cls(4)


@pytest.mark.parametrize("made", ["kind(4)", 'kind.from_pretrained("x")', 'kind.load("x")'])
@pytest.mark.parametrize("taken", TAKEN)
def test_model_of_a_table(taken: str, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = check_files(
        {"model.py": MODEL, "train.py": TRAIN.replace("TAKEN", taken).replace("MADE", made)}, device="cpu"
    )
    for name, given in (("library", {"Pretrained": Pretrained}), ("model", {})):
        module = ModuleType(name)
        vars(module).update(given or names_of(texts["model.py"]))
        monkeypatch.setitem(sys.modules, name, module)
    seen: list[tuple[bool, torch.dtype]] = []
    loss = nn.functional.binary_cross_entropy

    def watched(scores: torch.Tensor, *more: object, **named: object) -> torch.Tensor:
        seen.append((torch.is_autocast_enabled("cpu"), scores.dtype))
        return loss(scores, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(nn.functional, "binary_cross_entropy", watched)
    names_of(texts["train.py"])["main"]([], [(torch.randn(2, 4), torch.ones(2, 3))])
    assert seen == [(False, torch.float32)]
