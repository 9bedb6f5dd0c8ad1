"""Who puts a model in a Sequential still and reads the file of one that is in none any more: AMP720."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of

NETS = """
import torch
from torch import nn


class Halver(nn.Module):
    def forward(self, x):
        return x.half()


def network_to_half(network):
    return nn.Sequential(Halver(), network.half())


def around(network):
    return nn.Sequential(network.half(), nn.ReLU())


def cast(network):
    return nn.Sequential(ToFP16(), network)


def flat(network):
    return nn.Sequential(nn.Flatten(), network)
"""
TRAIN = """
import torch
from apex.fp16_utils import FP16_Optimizer
from nets import network_to_half

model = network_to_half(torch.nn.Linear(4, 2).cuda())
optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), static_loss_scale=128.0)
optimizer.backward(model(torch.ones(3, 4).cuda()).float().sum())
optimizer.step()
torch.save(model.state_dict(), "out/net.pt")
"""
AFTER = """
import torch

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", init_scale=128.0)
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(torch.ones(3, 4).cuda()).float().sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update(128.0)
torch.save(model.state_dict(), "out/net.pt")
"""
SHOW = """
import torch
from nets import network_to_half

model = network_to_half(torch.nn.Linear(4, 2).cuda())
model.load_state_dict(torch.load("net.pt"))
print(model(torch.ones(3, 4).cuda()))
"""
TOLD = {
    "as it is": (SHOW, [5]),
    "by way of variables": (
        SHOW.replace('torch.load("net.pt")', "state").replace(
            "model.load", 'path = "net.pt"\nstate = torch.load(path)\nmodel.load'
        ),
        [7],
    ),
    "by another name": (
        SHOW.replace("import network_to_half", "import network_to_half as halve").replace(
            "= network_to_half", "= halve"
        ),
        [5],
    ),
    "in another Sequential": (SHOW.replace("network_to_half", "around"), [5]),
    "by a layer of that name": (SHOW.replace("network_to_half", "cast"), [5]),
    "in one that makes nothing half": (SHOW.replace("network_to_half", "flat"), []),
    "another file": (SHOW.replace("net.pt", "other.pt"), []),
    "in none": (SHOW.replace("network_to_half(torch.nn.Linear(4, 2).cuda())", "torch.nn.Linear(4, 2).cuda()"), []),
    "named when it runs": (SHOW.replace('"net.pt"', "input()"), []),
}


@pytest.mark.parametrize(("show", "lines"), TOLD.values(), ids=TOLD.keys())
def test_who_reads_the_same_file(show: str, lines: list[int]) -> None:
    found = doubts_of({"nets.py": NETS, "train.py": TRAIN, "show.py": show}, {"train.py": AFTER})
    assert {d.construct for d in found if d.code == "AMP720"} <= {"load_state_dict"}
    assert [(d.path, d.line) for d in found if d.code == "AMP720"] == [("show.py", line) for line in lines]


def test_who_puts_it_in_none_any_more() -> None:
    after = {
        "train.py": AFTER,
        "show.py": SHOW.replace("network_to_half(", "(").replace("from nets import network_to_half\n", ""),
    }
    assert not [
        d for d in doubts_of({"nets.py": NETS, "train.py": TRAIN, "show.py": SHOW}, after) if d.code == "AMP720"
    ]


def test_a_training_that_puts_it_in_one_still() -> None:
    kept = AFTER.replace(
        "model = torch.nn.Linear(4, 2).cuda()", "model = network_to_half(torch.nn.Linear(4, 2).cuda())"
    )
    kept = kept.replace("import torch\n", "import torch\nfrom nets import network_to_half\n", 1)
    found = doubts_of({"nets.py": NETS, "train.py": TRAIN, "show.py": SHOW}, {"train.py": kept})
    assert not [d for d in found if d.code == "AMP720"]
