"""Autocast regions as a person would write them: what is taken in, and what is left alone."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files
from tests.rules.test_autocast import AUTOCAST, check_region

NETWORK = """
import torch
from torch import nn

def to_gpu(x):
    return x.contiguous().cuda()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)
    def parse_batch(self, batch):
        x, y = batch
        longest = torch.max(y).item()
        return to_gpu(x).float(), to_gpu(y)[:longest]
    def encode(self, x):
        return self.last(x)
    def similarity(self, x):
        return torch.matmul(x, x.t())
    def forward(self, x):
        return self.encode(x)
"""
TRAIN = """
import torch
from apex import amp
from network import Net
from project import criterion, loader

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for batch in loader:
    {line}
    output = model(x)
    loss = criterion(output, y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


def trained(line: str) -> str:
    """The training script once migrated, beside a network that stands in a file of its own."""
    return check_files({"train.py": TRAIN.format(line=line), "network.py": NETWORK})["train.py"]


# -- methods of the model --------------------------------------------------------------------------------------------


def test_a_method_that_only_moves_data_is_no_forward() -> None:
    after = trained("x, y = model.parse_batch(batch)")
    assert f"    x, y = model.parse_batch(batch)\n    {AUTOCAST}\n        output = model(x)\n" in after


@pytest.mark.parametrize("method", ["encode", "similarity", "unknown_method"])
def test_a_method_that_runs_parts_of_the_network_or_cannot_be_seen_is_one(method: str) -> None:
    after = trained(f"x, y = model.{method}(batch[0]), batch[1]")
    assert f"    {AUTOCAST}\n        x, y = model.{method}(batch[0]), batch[1]\n        output = model(x)\n" in after


# -- plain numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["[ceil(x) * 32 for x in y.shape[2:]]", "math.sqrt(x.size(0))"])
def test_plain_numbers_on_the_way_are_not_computed_in_a_region(size: str) -> None:
    """`x` is a tensor that the model computed, and a plain number in the list of sizes."""
    preparing = f"if large:\n    size = {size}\n    y = resize(y, size)\nshow(y)\n"
    check_region(
        f"x = model(x)\n{preparing}loss = criterion(x, y)\n",
        f"with region:\n    x = model(x)\n{preparing}with region:\n    loss = criterion(x, y)\n",
    )
