"""What only puts finished losses together, by the name of a loss, is computed in no region; and what a region is said to hold."""

from __future__ import annotations

import pytest

from tests.rules.helpers import names_of, rewrite, rewrite_files
from tests.rules.programs import found

PROGRAM = """
import torch
from apex import amp
MAKING

net, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
[net, head], optimizer = amp.initialize([net, head], optimizer, opt_level="O1")


def train(x):
    out = net(x)
    net_loss = out.float().abs().mean()
    optimizer.zero_grad()
    with amp.scale_loss(net_loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    losses = PACKED
    return losses


kept = train(torch.randn(8, 4))
"""
NAMED = 'from collections import namedtuple\n\nAllLosses = namedtuple("AllLosses", "net other")'
TYPED = (
    "from typing import NamedTuple\n\n\nclass AllLosses(NamedTuple):\n    net: torch.Tensor\n    other: torch.Tensor"
)
DATA = (
    "import dataclasses\n\n\n@dataclasses.dataclass\nclass AllLosses:\n    net: torch.Tensor\n    other: torch.Tensor"
)
FUNCTION = "\n\ndef AllLosses(net, other):\n    return net.exp() + other.exp()"
NETWORK = (
    "\n\nclass AllLosses(torch.nn.Module):\n    def forward(self, net, other):\n        return net.exp() + other.exp()"
)


@pytest.mark.parametrize("making", [NAMED, TYPED, DATA])
def test_a_record_of_losses_is_made_outside_of_any_region(making: str) -> None:
    result = rewrite(
        PROGRAM.replace("MAKING", making).replace("PACKED", "AllLosses(net=net_loss, other=out)"), device="cpu"
    )
    assert "    scaler.update()\n    losses = AllLosses(net=net_loss, other=out)\n" in str(result.after)
    assert names_of(result.after)["kept"].net.dim() == 0


@pytest.mark.parametrize(
    ("making", "packed"),
    [
        (FUNCTION, "AllLosses(net_loss, out)"),
        (NETWORK, "AllLosses()(net_loss, out)"),
        (NAMED, "AllLosses(net=net_loss, other=torch.nn.functional.mse_loss(out, x))"),
    ],
)
def test_what_computes_a_loss_stays_in_one(making: str, packed: str) -> None:
    after = rewrite(PROGRAM.replace("MAKING", making).replace("PACKED", packed)).after
    assert f'    with torch.autocast("cuda", dtype=torch.float16):\n        losses = {packed}\n' in str(after)


def test_a_record_of_another_file() -> None:
    text = PROGRAM.replace("MAKING", "from kinds import AllLosses").replace(
        "PACKED", "AllLosses(net=net_loss, other=out)"
    )
    after = rewrite_files({"train.py": text, "kinds.py": NAMED})["train.py"].after
    assert "    scaler.update()\n    losses = AllLosses(net=net_loss, other=out)\n" in str(after)


TEACHER = """
import torch
from apex import amp

teacher = torch.nn.Linear(4, 1).eval()
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer = amp.initialize(net, optimizer, opt_level="O1")


def train(x):
    out = net(x)
    optimizer.zero_grad()
    loss = out.float().mean()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    seen = teacher(x)
    print("a line of its own")
    checks = [len(x), x.shape]
    print(checks, "and another")
    loss = (seen.float() - x).abs().mean() + net.weight.sum()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


def test_a_region_around_the_forward_of_another_network_holds_a_forward() -> None:
    result = rewrite(TEACHER)
    assert "        seen = teacher(x)\n" in str(result.after)
    line = TEACHER.splitlines().index("    seen = teacher(x)")
    (told,) = [f.message for f in found(result, "AMP501") if f.line == line]
    assert told == "the forward runs under autocast"
