"""What happens below a forward in a region: arrays and float32 islands in the code of the model: AMP535."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts

NET = """
import numpy as np
import torch
import torch.nn.functional as F
from apex import amp

def distance(one, other):
    return torch.matmul(one, other.transpose(0, 1)).sum()

def peaks(maps):
    return maps.detach().cpu().numpy() * 2

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 2)
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x, ids):
        hidden = self.norm(self.body(x))
        out = self.head(hidden)
        BODY
        return out

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
for x, y in loader:
    REGIONout = model(x, y)
"""


def found(level: str, body: str) -> list[Doubt]:
    net = NET.replace("BODY", body)
    before = net + f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")\n' + LOOP
    after = net.replace("from apex import amp\n", "") + "scaler = torch.amp.GradScaler()\n" + LOOP
    region = 'with torch.autocast("cuda", dtype=torch.float16):\n        '
    texts = (before.replace("REGION", ""), after.replace("REGION", region))
    return [d for d in doubts(*texts) if d.code == "AMP535"]


@pytest.mark.parametrize(
    "body",
    ["self.seen = out.detach().cpu().numpy()", "self.seen = out.sigmoid().cpu().numpy()", "self.seen = peaks(out)"],
)
def test_an_array_made_below_the_region(body: str) -> None:
    (doubt,) = found("O1", body)
    assert doubt.verdict == "review"
    assert "float16 array" in doubt.message


@pytest.mark.parametrize(
    "body",
    [
        "self.seen = out.float().cpu().numpy()",
        "self.seen = out.argmax(1).cpu().numpy()",
        "self.seen = F.softmax(out, dim=1).cpu().numpy()",
        "self.seen = hidden.cpu().numpy()",  # a LayerNorm gives float32
        "self.seen = ids.cpu().numpy()",
    ],
)
def test_arrays_below_the_region_that_were_no_halves(body: str) -> None:
    assert not found("O1", body)


def test_a_model_that_a_class_method_makes() -> None:
    net = NET.replace("BODY", "loss = distance(hidden.float(), out.float())").replace(
        "Net().cuda()", 'Net.from_file("a")'
    )
    before = net + 'model, optimizer = amp.initialize(model, optimizer, opt_level="O2")' + LOOP.replace("REGION", "")
    region = 'with torch.autocast("cuda", dtype=torch.float16):\n        '
    after = (
        net.replace("from apex import amp\n", "") + "scaler = torch.amp.GradScaler()" + LOOP.replace("REGION", region)
    )
    (doubt,) = [d for d in doubts(before, after) if d.code == "AMP535"]
    assert "enabled=False" in doubt.message


def test_o2_gave_numpy_the_halves_of_its_own_model() -> None:
    assert not found("O2", "self.seen = out.detach().cpu().numpy()")


@pytest.mark.parametrize(
    "body",
    [
        "loss = distance(hidden.float(), out.float())",
        "loss = hidden.float() @ out.to(torch.float32)",
        "loss = torch.einsum('ij,kj->ik', hidden.float(), out.float())",
        "one = F.normalize(hidden.float(), dim=1)\n        loss = torch.mm(one, one.t())",
    ],
)
def test_what_the_program_kept_in_float32_under_o2(body: str) -> None:
    (doubt,) = found("O2", body)
    assert doubt.verdict == "review"
    assert "enabled=False" in doubt.message
    # O1's patched functions ran it in half as well, but for einsum, which it did not patch.
    assert ["O1 did not patch einsum" in d.message for d in found("O1", body)] == [True] * ("einsum" in body)


def test_each_product_of_what_the_program_kept_in_float32() -> None:
    """What a product of them gives was float32 under O2 as well, and so was the next."""
    body = "cost = 1 - hidden.float() @ out.float().t()\n        plan = torch.exp(-cost)\n"
    body += "        plan = plan * plan\n        near = plan.matmul(cost)\n        loss = near.mm(plan).sum()"
    assert [(d.line, d.message.partition(":")[0]) for d in found("O2", body)] == [
        (22, "hidden.float() @ out.float().t()"),
        (25, "plan.matmul(cost)"),
        (26, "near.mm(plan)"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        "loss = distance(hidden, out)",
        "loss = hidden.float().sum() + out.float().exp().mean()",
        "with torch.autocast('cuda', enabled=False):\n            loss = distance(hidden.float(), out.float())",
        "loss = F.softmax(out.float(), dim=1).to(x.dtype).sum()",
    ],
)
def test_what_autocast_leaves_in_float32_or_was_half(body: str) -> None:
    assert not found("O2", body)
