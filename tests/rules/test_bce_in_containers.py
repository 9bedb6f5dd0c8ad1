"""A BCELoss among the criteria that an object keeps, however it came there, stays out of the region."""

from __future__ import annotations

import pytest
import torch

from tests.rules.helpers import rewrite

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


@pytest.mark.parametrize(("holds", "add", "turn"), WAYS)
def test_it_is_computed_in_float32_outside_of_the_region(holds: str, add: str, turn: str) -> None:
    text = PROGRAM.replace("HOLDS", holds).replace("ADD", add).replace("TURN", turn)
    result = rewrite(text, device="cpu")
    assert not [f for f in result.findings if f.status == "manual"]
    names: dict[str, object] = {}
    torch.manual_seed(0)
    exec(compile(result.after or "", "train.py", "exec"), names)
    inside: list[bool] = []
    kept = torch.nn.BCELoss.forward

    def forward(self: torch.nn.BCELoss, *given: torch.Tensor) -> torch.Tensor:
        inside.append(torch.is_autocast_enabled("cpu") or given[0].dtype != torch.float32)
        return kept(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.BCELoss, "forward", forward)
        names["main"]([(torch.randn(8, 4), torch.rand(8, 2))], "cpu")  # type: ignore[operator]
    assert inside == [False]


def test_another_criterion_stays_in_the_region() -> None:
    text = PROGRAM.replace("HOLDS", "[]").replace("ADD", "self.criteria.append(criterion)").replace("TURN", ONE)
    text = text.replace("BCELoss", "MSELoss").replace("torch.sigmoid(output)", "output")
    after = rewrite(text).after or ""
    assert "            for criterion in self.criteria:\n                loss = loss + criterion(output, y)" in after
