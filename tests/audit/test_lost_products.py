"""A product behind a region of what a model gives in float32 was half under O1, and is none now: it is told of (AMP537)."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files
from tests.rules.programs import found

NET = """
from torch import nn


class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(4, 8), LAST)

    def forward(self, x, y):
        return {"left": self.head(x), "right": self.head(y)}
"""
RUN = """
import torch
from apex import amp
from data import batches
from net import Twin


def evaluate(net):
    hits = 0
    for x, y in batches():
        with torch.no_grad():
            outputs = net(x, y)
            left, right = outputs["left"], outputs["right"]
            scores = PRODUCT
            hits += scores.argmax(-1).sum().item()
    return hits


def main():
    net = Twin().cuda()
    optimizer = torch.optim.Adam(net.parameters())
    net, optimizer = amp.initialize(net, optimizer, opt_level="LEVEL")
    for x, y in batches():
        optimizer.zero_grad()
        outputs = net(x, y)
        loss = (outputs["left"] - outputs["right"]).pow(2).mean()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        evaluate(net)


if __name__ == "__main__":
    main()
"""


def told(product: str, last: str = "nn.LayerNorm(8)", level: str = "O1") -> list[str]:
    run = RUN.replace("PRODUCT", product).replace("LEVEL", level)
    files = rewrite_files({"run.py": run, "net.py": NET.replace("LAST", last)})
    return [f.message.partition(" ran in half")[0] for f in found(files["run.py"], "AMP537")]


@pytest.mark.parametrize("product", ["torch.mm(left, right.t())", "torch.matmul(left, right.t())"])
def test_a_product_of_float32_outputs_is_told_of(product: str) -> None:
    assert told(product) == [product]


@pytest.mark.parametrize(
    ("product", "last", "level"),
    [
        ("torch.mm(left, right.t())", "nn.Linear(8, 8)", "O1"),  # half on both sides
        ("torch.mm(left, right.t())", "nn.LayerNorm(8)", "O2"),  # which patched nothing
        ("left * right", "nn.LayerNorm(8)", "O1"),
    ],
)
def test_nothing_is_said_of_others(product: str, last: str, level: str) -> None:
    assert told(product, last, level) == []
