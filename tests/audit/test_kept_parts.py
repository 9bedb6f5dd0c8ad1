"""A network runs others that it keeps in fields, whatever the field is called and wherever the whole is made."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told

NETS = """
import torch
from torch.nn import functional as F

class Head(torch.nn.Module):
    def forward(self, x, y=None):
        if y is None:
            return x
        try:
            return self.loss(x, y)
        except RuntimeError:
            return self.loss(x, y, mode="cpu")

    @torch.no_grad()
    def loss(self, x, y, mode="gpu"):
        return F.binary_cross_entropy(x.float().sigmoid_(), y.float())

class Net(torch.nn.Module):
    def __init__(self, head=None):
        super().__init__()
        self.{field} = Head() if head is None else head

    def forward(self, x, y):
        return self.{field}(x, y)
"""
TRAIN = """
import torch
from nets import Head, Net
{imported}

class Recipe:
    def build_net(self):
        self.net = Net(Head())
        return self.net

class Small(Recipe):
    def build_net(self):
        return Net()

{other}

class Trainer:
    def __init__(self, recipe):
        self.recipe = recipe

    def train(self, loader, optimizer):
        model = {made}
        {setup}
        for x, y in loader:
            {forward}
            optimizer.step()

def main(name, loader, optimizer):
    Trainer(load(name)).train(loader, optimizer)
"""
SETUP = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
REGION = 'with torch.autocast("cuda", dtype=torch.float16):\n                loss = model(x, y)'


def banned(made: str, field: str = "part", other: str = "") -> list[tuple[int, str]]:
    def train(imported: str, setup: str, forward: str) -> str:
        return TRAIN.format(imported=imported, made=made, setup=setup, forward=forward, other=other)

    before, after = train("from apex import amp", SETUP, "loss = model(x, y)"), train("", "pass", REGION)
    files = {"train.py": before, "nets.py": NETS.replace("{field}", field)}
    return told(doubts_of(files, {"train.py": after}), "AMP533")


@pytest.mark.parametrize("field", ["head", "backbone", "bert", "part"])
@pytest.mark.parametrize("made", ["Net()", "Net(Head())", "self.recipe.build_net()"])
def test_what_a_part_computes_is_reached_where_the_whole_runs(made: str, field: str) -> None:
    assert [verdict for _, verdict in banned(made, field)] == ["refuse"]


def test_of_classes_that_have_nothing_in_common_the_object_may_be_none() -> None:
    other = "class Vendor:\n    def build_net(self):\n        return None\n"
    assert banned("self.recipe.build_net()", other=other) == []


EVALUATED = """
import torch
{imported}

class Evaluator:
    def evaluate(self, model, loader):
        for x in loader:
            print(model(x))

class Recipe:
    def build_net(self):
        return torch.nn.Linear(4, 4)

    def build_evaluator(self):
        return Evaluator()

    def eval(self, model, evaluator, loader):
        return evaluator.evaluate(model, loader)

class Trainer:
    def __init__(self, recipe):
        self.recipe = recipe

    def train(self, loader, optimizer):
        model = self.recipe.build_net()
        self.evaluator = self.recipe.build_evaluator()
        {setup}
        for x, y in loader:
            {forward}
            optimizer.step()
        {evaluated}

def main(name, loader, optimizer):
    Trainer(load(name)).train(loader, optimizer)

if __name__ == "__main__":
    main("small", [], None)
"""
ALONE = """
from train import Recipe

if __name__ == "__main__":
    Recipe().build_evaluator().evaluate(Recipe().build_net(), [])
"""


@pytest.mark.parametrize(
    ("evaluated", "lost"),
    [
        ("self.recipe.eval(model, self.evaluator, loader)", True),
        ("self.evaluator.evaluate(model, loader)", True),
        ("model.eval()", False),
    ],
)
def test_an_evaluation_that_the_training_run_comes_to_through_objects_made_elsewhere(
    evaluated: str, lost: bool
) -> None:
    """Another entry that never set Apex up calls it, too: what is sure of that one says nothing of the training run."""

    def train(imported: str, setup: str, forward: str) -> str:
        return EVALUATED.format(imported=imported, setup=setup, forward=forward, evaluated=evaluated)

    before = train("from apex import amp", SETUP, "loss = model(x)")
    after = train("", "pass", 'with torch.autocast("cuda", dtype=torch.float16):\n                loss = model(x)')
    found = told(doubts_of({"train.py": before, "alone.py": ALONE}, {"train.py": after}), "AMP531")
    assert [line for line, _ in found] == [7] * lost
