"""Gradients of inputs that a function is given: no optimizer has them, and nothing unscales them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

LOOP = """
import torch
from apex import amp


def train(shift, model, optimizer, loader):
    for x in loader:
        loss = model(x + shift).sum()
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        grad = shift.grad.detach()
        shift.data = (shift + 0.5 * torch.sign(grad)).clamp(-1, 1)
        optimizer.step()
        shift.grad.zero_()
    return shift
"""
MAIN = """
import json

import torch
from apex import amp
from loop import train

model = torch.nn.Linear(2, 1, bias=False)
model.weight.data = torch.tensor([[1.0, -1.0]])
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
GIVEN
for _ in range(2):
    shift = train(shift, model, optimizer, [torch.ones(1, 2)])
print(json.dumps(shift.tolist()))
"""
INPUT = "shift = torch.zeros(1, 2)\nshift.requires_grad = True"


def test_the_gradient_of_an_input_is_not_unscaled(tmp_path: Path) -> None:
    texts = check_files({"loop.py": LOOP, "main.py": MAIN.replace("GIVEN", INPUT)}, device="cpu")
    assert "unscale_" not in texts["loop.py"]
    assert run_files(tmp_path, texts, "main.py") == [[1.0, -1.0]]


@pytest.mark.parametrize("given", ["shift = model.weight", "shift = next(model.parameters())"])
def test_the_gradient_of_a_parameter_is(given: str) -> None:
    results = rewrite_files({"loop.py": LOOP, "main.py": MAIN.replace("GIVEN", given)})
    assert "unscale_" in (results["loop.py"].after or "unscale_")
