"""A field that a method makes only where it comes to it: what leaves the method before leaves the object without (AMP131)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

PROGRAM = """
import torch
IMPORT

class Trainer:
    def __init__(self, args):
        self.args = args
        self.optimizer = None

    def run(self, model, data, optimizer):
        model = self.prepare(model, optimizer)
        for x in data:
            self.train(model, x)

    def prepare(self, model, optimizer):
        self.optimizer = optimizer
        BEFORE
        SETUP
        return model

    def enabled(self):
        return self.args.gpu and self.args.fp16

    def train(self, model, x):
        GUARD
        REGION
            loss = model(x).mean()
        BACKWARD
        self.meter.update(loss)

def main(args):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    Trainer(args).run(model, torch.randn(4, 2, 4).cuda(), optimizer)
"""
OLD = {
    "IMPORT": "from apex import amp",
    "SETUP": "model, self.optimizer = amp.initialize(model, self.optimizer, opt_level='O1')",
    "REGION": "if True:",
    "BACKWARD": "if self.enabled():\n            with amp.scale_loss(loss, self.optimizer) as scaled_loss:\n"
    "                scaled_loss.backward()\n        else:\n            loss.backward()\n        self.optimizer.step()",
}
NEW = {
    "IMPORT": "",
    "SETUP": "self.scaler = torch.amp.GradScaler('cuda')",
    "REGION": "with torch.autocast('cuda', dtype=torch.float16, enabled=self.scaler.is_enabled()):",
    "BACKWARD": "self.scaler.scale(loss).backward()\n        self.scaler.step(self.optimizer)\n        self.scaler.update()",
}


def found(before: str, setup: str = "", guard: str = "pass", old_setup: str = "", program: str = PROGRAM) -> list[str]:
    texts = []
    for names, own in ((OLD, old_setup), (NEW, setup)):
        text = program.replace("BEFORE", before).replace("GUARD", guard)
        for name, value in (names | ({"SETUP": own} if own else {})).items():
            text = text.replace(name, value)
        texts.append(text)
    return [verdict for _, verdict in told(doubts(*texts), "AMP131")]


@pytest.mark.parametrize("test", ["self.args.gpu", "self.enabled()"])
def test_what_returns_before_leaves_it_out(test: str) -> None:
    """A run in float32, which is what most start with, stopped with an AttributeError."""
    assert found(f"if not {test}:\n            return model") == ["refuse"]


def test_what_returns_in_the_branch_of_an_if_that_ends_the_method_does() -> None:
    program = PROGRAM.replace("\n        return model\n", "\n").replace("model = self.prepare", "self.prepare")
    ends = "if not self.args.gpu:\n            return\n        else:\n            SETUP"
    setups = {name: ends.replace("SETUP", of["SETUP"]) for name, of in (("old_setup", OLD), ("setup", NEW))}
    assert found("pass", **setups, program=program) == ["refuse"]


@pytest.mark.parametrize("before", ["pass", "if not self.args.gpu:\n            raise ValueError"])
def test_what_always_comes_to_it_does_not(before: str) -> None:
    assert not found(before)


def test_nor_where_it_is_made_above() -> None:
    assert not found(f"{NEW['SETUP']}\n        if not self.args.gpu:\n            return model", setup="pass")


@pytest.mark.parametrize("test", ["self.args.gpu", "self.enabled()"])
def test_nor_where_the_same_is_asked_before_it_is_read(test: str) -> None:
    assert not found(f"if not {test}:\n            return model", guard=f"if not {test}:\n            return")


def test_one_that_a_branch_makes_is_missing_elsewhere() -> None:
    setup = f"if self.args.fp16:\n            {NEW['SETUP']}"
    old = f"if self.args.fp16:\n            {OLD['SETUP']}"
    assert found("pass", setup=setup, old_setup=old) == ["refuse"]
    assert not found("pass", setup=setup, old_setup=old, guard="if not self.args.fp16:\n            return")


BASE = """
import torch
IMPORT

class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def evaluate(self, data):
        for x in data:
            REGION
                print(self.model(x).argmax(1))

class Mixed(Trainer):
    def __init__(self, model, optimizer):
        super().__init__(model, optimizer)
        SETUP

    def train(self, data):
        for x in data:
            loss = self.model(x).mean()
            STEP

MADE
"""


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        ("Trainer(net, None).evaluate(data)\nMixed(net, optimizer).evaluate(data)", True),
        (
            "def get(plain, net, optimizer):\n    return Trainer(net, None) if plain else Mixed(net, optimizer)",
            True,
        ),
        ("Mixed(net, optimizer).evaluate(data)", False),
    ],
)
def test_an_object_of_the_base_has_none_that_only_a_class_below_makes(made: str, refused: bool) -> None:
    before = (
        BASE.replace("IMPORT", "from apex import amp")
        .replace("REGION", "if True:")
        .replace("SETUP", "self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level='O1')")
        .replace(
            "STEP",
            "with amp.scale_loss(loss, self.optimizer) as scaled:\n                scaled.backward()\n"
            "            self.optimizer.step()",
        )
    )
    after = (
        BASE.replace("IMPORT", "")
        .replace("REGION", "with torch.autocast('cuda', dtype=torch.float16, enabled=self.scaler.is_enabled()):")
        .replace("SETUP", "self.scaler = torch.amp.GradScaler('cuda')")
        .replace(
            "STEP",
            "self.scaler.scale(loss).backward()\n            self.scaler.step(self.optimizer)\n            self.scaler.update()",
        )
    )
    texts = [t.replace("MADE", made) for t in (before, after)]
    assert ("refuse" in [verdict for _, verdict in told(doubts(*texts), "AMP131")]) is refused
