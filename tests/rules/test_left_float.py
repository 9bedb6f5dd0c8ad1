"""Criteria with products of their own under O2, which cast the models alone: they stay outside of regions, on float32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rules.helpers import FileResult, rewrite, run_alone

SOURCE = """
import json
import torch
from torch import nn
from apex import amp

class Contrast(nn.Module):
    def forward(self, a, b, y):
        scores = a @ b.t()
        return nn.functional.cross_entropy(scores / 0.1, y)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        return self.body(x), self.body(2 * x)

model = Net()
criterion = Contrast()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
for x, y in [(torch.ones(2, 4), torch.tensor([0, 1]))]:
    a, b = model(x)
    loss = criterion(a, b, y)
    loss = loss * 0.5
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
OUTSIDE = "        a, b = model(x)\n    loss = criterion(a.float(), b.float(), y)\n    loss = loss * 0.5\n    optimizer"
INIT = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O2")'


def _told(result: FileResult) -> list[str]:
    return [f.message for f in result.findings if f.code == "AMP507"]


def test_a_criterion_that_multiplies_is_given_float32_outside(tmp_path: Path) -> None:
    shown = "print(json.dumps([str(a.dtype), str((a @ b.t()).dtype)]))"
    result = rewrite(SOURCE.replace("scores = ", f"{shown}\n        scores = "), device="cpu")
    assert OUTSIDE in (result.after or "")
    assert _told(result) == [
        "criterion was not given to amp.initialize, and is computed outside autocast, on float32 inputs, as it was"
    ]
    assert not [f for f in result.findings if f.code in ("AMP531", "AMP535")]
    printed, _ = run_alone(tmp_path, result.after or "")
    assert json.loads(printed[0] if isinstance(printed, list) else printed) == ["torch.float32", "torch.float32"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('opt_level="O2"', 'opt_level="O1"'),
        ('opt_level="O2"', "opt_level=level"),
        ("a @ b.t()", "a * b"),
        ("a @ b.t()", "a[0] @ b[0]"),  # which may be lists
        ("a @ b.t()", "compare(a, b)"),
        (INIT, 'model, criterion = amp.initialize([model, criterion], opt_level="O2")'),
        ("loss = criterion(a, b, y)", "loss = criterion(a, b, y) + model(x)[0].sum()"),
    ],
)
def test_where_it_is_not_certain_or_the_same_it_stays_inside(old: str, new: str) -> None:
    result = rewrite(SOURCE.replace(old, new))
    assert result.after is None or "        loss = criterion(a, b, y)" in result.after
    assert not _told(result)


@pytest.mark.parametrize("product", ["torch.mm(a, b.t())", "a.matmul(b.t())", "compare(a.flatten(1), b.flatten(1))"])
def test_products_are_seen_where_they_stand(product: str) -> None:
    compare = "def compare(a, b):\n    return torch.einsum('ij,kj->ik', a, b)\n\nclass Contrast"
    assert _told(rewrite(SOURCE.replace("class Contrast", compare).replace("a @ b.t()", product)))
