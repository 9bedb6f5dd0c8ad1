"""Networks with a method that trains: it runs their own forward, `self.forward(x)` or `self(x)`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, run_files

NET = """
import torch
import terms
from apex import amp

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(2, 2)
        self.smooth = terms.Smooth(2).total
        self.fold = terms.folding
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)

    def forward(self, x):
        self.seen = self.body(x)
        return {{"field": self.seen}}

    def update(self, x):
        self.optimizer.zero_grad()
        found = {run}(x)
        loss = self.smooth(found["field"])
        loss += self.fold(found["field"])
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.optimizer.step()

    def sample(self, x):
        with torch.no_grad():
            return {run}(x)
"""
TERMS = """
import torch

class Smooth:
    def __init__(self, power):
        self.power = power

    def total(self, field):
        return torch.mean(torch.abs(field) ** self.power)

def folding(field):
    return torch.mean(torch.abs(field))
"""
MAIN = """
import json
import torch
from apex import amp
from net import Net

model = Net()
model, model.optimizer = amp.initialize(model, model.optimizer, opt_level="O1")
model.update(torch.ones(1, 2))
seen = [str(model.seen.dtype)]
model.sample(torch.ones(1, 2))
print(json.dumps([*seen, str(model.seen.dtype)]))
"""


@pytest.mark.parametrize("run", ["self.forward", "self"])
def test_the_region_holds_its_own_forward_whatever_functions_it_keeps(tmp_path: Path, run: str) -> None:
    """A function or a method of another object that an attribute holds is no run of a model."""
    texts = check_files({"net.py": NET.format(run=run), "terms.py": TERMS, "main.py": MAIN}, device="cpu")
    assert run_files(tmp_path, texts, "main.py") == ["torch.float16"] * 2
