"""A BCELoss among the criteria that an object keeps, however it came there, stays out of the region."""

from __future__ import annotations

import re

import pytest
import torch

from tests.audit.helpers import doubts
from tests.rules.helpers import names_of, rewrite
from tests.rules.programs import found

PROGRAM = """
import torch
from apex import amp

seen = []

class Trainer:
    def __init__(self, device):
        self.criteria = HOLDS
        self.model = torch.nn.Linear(4, 2).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def add(self, name, criterion):
        ADD

    def setup(self):
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O2")

    def step(self, x, y):
        self.optimizer.zero_grad()
        output = self.model(x)
        loss = 0
        for TURN:
            loss = loss + criterion(torch.sigmoid(output), y)
        seen.append(loss)
        with amp.scale_loss(loss, self.optimizer) as scaled:
            scaled.backward()
        self.optimizer.step()

def main(loader, device):
    trainer = Trainer(device)
    trainer.add("bce", torch.nn.BCELoss())
    trainer.setup()
    for x, y in loader:
        trainer.step(x, y)
"""
ONE, PAIR, ITEMS = (
    "criterion in self.criteria",
    "name, criterion in self.criteria",
    "name, criterion in self.criteria.items()",
)
WAYS = [
    ("[]", "self.criteria.append(criterion)", ONE),
    ("[]", "self.criteria.insert(0, criterion)", ONE),
    ("[]", "self.criteria.extend([criterion])", ONE),
    ("[]", "self.criteria += [criterion]", ONE),
    ("[]", "self.criteria.append((name, criterion))", PAIR),
    ("[]", "self.criteria.extend([(name, criterion)])", PAIR),
    ("[]", "self.criteria += [(name, criterion)]", PAIR),
    ("[]", "self.criteria.append(torch.nn.BCELoss())", ONE),
    ("[]", 'self.criteria.append(("bce", torch.nn.BCELoss()))', PAIR),
    ("{}", "self.criteria[name] = criterion", ITEMS),
    ("{}", "self.criteria.setdefault(name, criterion)", ITEMS),
    ("{}", 'self.criteria["bce"] = torch.nn.BCELoss()', ITEMS),
    ("{}", "self.criteria.update(bce=torch.nn.BCELoss())", ITEMS),
]


def computed_in_half(text: str | None) -> list[bool]:
    """Of each BCELoss that a migrated program computes: whether a region was around it, or what it was given was half."""
    names = names_of(text)
    inside: list[bool] = []
    kept = torch.nn.BCELoss.forward

    def forward(self: torch.nn.BCELoss, *given: torch.Tensor) -> torch.Tensor:
        inside.append(torch.is_autocast_enabled("cpu") or given[0].dtype != torch.float32)
        return kept(self, *given)

    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.BCELoss, "forward", forward)
        names["main"]([(torch.randn(8, 4), torch.rand(8, 2))], "cpu")
    return inside


@pytest.mark.parametrize(("holds", "add", "turn"), WAYS)
def test_it_is_computed_in_float32_outside_of_the_region(holds: str, add: str, turn: str) -> None:
    text = PROGRAM.replace("HOLDS", holds).replace("ADD", add).replace("TURN", turn)
    result = rewrite(text, device="cpu")
    assert not [f for f in result.findings if f.status == "manual"]
    assert computed_in_half(result.after) == [False]


def test_another_criterion_stays_in_the_region() -> None:
    text = PROGRAM.replace("HOLDS", "[]").replace("ADD", "self.criteria.append(criterion)").replace("TURN", ONE)
    text = text.replace("BCELoss", "MSELoss").replace("torch.sigmoid(output)", "output")
    after = rewrite(text).after or ""
    assert "            for criterion in self.criteria:\n                loss = loss + criterion(output, y)" in after


COMPOSITE = """
import torch
from apex import amp

class Criterion(torch.nn.Module):
    def __init__(self):
        super().__init__()
        HOLDS

    def forward(self, x, y):
        RETURN

def main(loader, device):
    model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Sigmoid()).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    criterion = Criterion()
    for x, y in loader:
        loss = criterion(model(x).float(), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
"""
KEPT = [
    ("self.add_module('bce', torch.nn.BCELoss())", "return self.bce(x, y)"),
    (
        "self.parts = torch.nn.ModuleDict()\n        self.parts.add_module('a', torch.nn.BCELoss())",
        "return self.parts['a'](x, y)",
    ),
    ("setattr(self, 'bce', torch.nn.BCELoss())", "return self.bce(x, y)"),
    ("self.parts = dict(a=torch.nn.BCELoss(), b=torch.nn.MSELoss())", "return self.parts['a'](x, y)"),
    ("self.parts = {'a': torch.nn.BCELoss(), 'b': torch.nn.MSELoss()}", "return self.parts['a'](x, y)"),
    ("self.parts = torch.nn.ModuleDict({'a': torch.nn.BCELoss()})", "return self.parts['a'](x, y)"),
    ("self.parts = {}\n        self.parts['a'] = torch.nn.BCELoss()", "return self.parts['a'](x, y)"),
    ("self.parts = torch.nn.ModuleList()\n        self.parts += [torch.nn.BCELoss()]", "return self.parts[0](x, y)"),
]
TURNS = [
    (
        "self.parts = []\n        self.parts = self.parts + [torch.nn.BCELoss()]",
        "return sum(p(x, y) for p in self.parts)",
    ),
    (
        "self.parts = torch.nn.ModuleDict()\n        self.parts.update({'a': torch.nn.BCELoss()})",
        "return sum(part(x, y) for _, part in self.parts.items())",
    ),
]


def composite(holds: str, computes: str) -> str:
    return COMPOSITE.replace("HOLDS", holds).replace("RETURN", computes)


@pytest.mark.parametrize(("holds", "computes"), KEPT)
def test_one_that_a_criterion_holds_is_computed_without_autocast(holds: str, computes: str) -> None:
    result = rewrite(composite(holds, computes), device="cpu")
    assert not [f for f in result.findings if f.status == "manual" or f.code == "AMP533"]
    assert computed_in_half(result.after) == [False]


@pytest.mark.parametrize(("holds", "computes"), KEPT)
def test_the_audit_sees_one_that_a_criterion_holds(holds: str, computes: str) -> None:
    before = composite(holds, computes)
    after = re.sub(r"with torch.autocast\(.cuda., enabled=False\):", "if True:", rewrite(before).after or "")
    assert "if True:" in after
    assert "AMP533" in [d.code for d in doubts(before, after)]


@pytest.mark.parametrize(("holds", "computes"), TURNS)
def test_where_it_cannot_be_taken_out_that_is_told(holds: str, computes: str) -> None:
    assert found(rewrite(composite(holds, computes)), "AMP533")


def test_another_part_of_the_criterion_stays_in_the_region() -> None:
    after = rewrite(
        composite("self.parts = dict(a=torch.nn.BCELoss(), b=torch.nn.MSELoss())", "return self.parts['b'](x, y)")
    ).after
    assert after is not None
    assert "        return self.parts['b'](x, y)\n" in after
