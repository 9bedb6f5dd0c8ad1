"""Half models under torch's DistributedDataParallel and SyncBatchNorm, and buffers that a model has none of."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

NETWORK = """
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)
        LAYER

    def forward(self, x):
        if x.dtype == torch.float16:
            CAST
            x = x.float()
        return self.conv(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Head()

    def forward(self, x):
        return self.head(x)
"""
TRAIN = """
import argparse
import torch
import apex
from network import Net

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()


def evaluate(model, loader):
    with torch.no_grad():
        return [model(x) for x in loader]


def main(loader):
    model = Net()
    SYNC
    model = model.cuda()
    HALF
    model = apex.parallel.DistributedDataParallel(model, delay_allreduce=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = (model(x) - y).sum()
        optimizer.zero_grad()
        BACKWARD
        optimizer.step()
    if args.local_rank == 0:
        evaluate(model, loader)


if __name__ == "__main__":
    main([])
"""


def codes(
    cast: str = "pass",
    half: str = "model = model.half()",
    sync: str = "",
    layer: str = "",
    backward: str = "loss.backward()",
) -> list[str]:
    network = NETWORK.replace("CAST", cast).replace("LAYER", layer)
    train = TRAIN.replace("HALF", half).replace("SYNC", sync).replace("BACKWARD", backward)
    found = rewrite_files({"network.py": network, "train.py": train})["train.py"]
    assert "torch.nn.parallel" in (found.after or "")
    assert all(f.construct == "DistributedDataParallel" for f in found.findings if f.code == "AMP654")
    return [f.code for f in found.findings]


@pytest.mark.parametrize(
    ("cast", "half", "backward", "said"),
    [
        ("self.conv = self.conv.float()", "model = model.half()", "loss.backward()", True),
        ("self.conv = self.conv.float()", "", "loss.backward()", False),
        ("self.conv = self.conv.float()", "model = model.half()", "pass", False),
        ("hidden = self.conv.weight.float()", "model = model.half()", "loss.backward()", False),
        ("pass", "model = model.half()", "loss.backward()", False),
        ("self.conv = self.conv.float()", "teacher = Net().half()", "loss.backward()", False),
        ("self.conv = self.conv.float()", "def shrink(): model.half()", "loss.backward()", False),
    ],
)
def test_a_part_that_changes_its_dtype_once_the_model_is_wrapped(
    cast: str, half: str, backward: str, said: bool
) -> None:
    assert ("AMP654" in codes(cast, half, backward=backward)) is said


@pytest.mark.parametrize(
    ("sync", "half", "said"),
    [
        ("model = apex.parallel.convert_syncbn_model(model)", "model = model.half()", True),
        ("model = apex.parallel.convert_syncbn_model(model)", "", False),
        ("", "model = model.half()", False),
    ],
)
def test_synchronized_batch_normalization_of_a_half_model(sync: str, half: str, said: bool) -> None:
    assert ("AMP655" in codes(half=half, sync=sync)) is said


@pytest.mark.parametrize(
    ("layer", "written"),
    [
        ("", False),
        ("self.norm = nn.LayerNorm(4)", False),
        ("self.norm = nn.BatchNorm2d(4)", True),
        ("self.register_buffer('mean', torch.zeros(4))", True),
        ("import torchvision\n        self.body = torchvision.models.resnet18()", True),
    ],
)
def test_a_model_without_buffers_may_run_on_one_rank(layer: str, written: bool) -> None:
    train = TRAIN.replace("HALF", "").replace("SYNC", "").replace("BACKWARD", "loss.backward()")
    network = NETWORK.replace("CAST", "pass").replace("LAYER", layer)
    after = rewrite_files({"network.py": network, "train.py": train})["train.py"].after or ""
    assert (".broadcast_buffers = False" in after) is written
