"""What a forward gives in one call, by the arguments of that call; what leaves a region and is computed in nowhere: AMP535."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

NETWORK = """
import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 3)
        self.norm = nn.LayerNorm(8)

    def forward(self, x, target=None, indices=False, kind="scores"):
        hidden = self.body(x)
        if kind == "features":
            return self.norm(hidden)
        scores = self.head(hidden)
        if indices:
            return torch.max(scores, -1)[1] + 1
        if target is not None:
            target = target.view(-1)
            return nn.functional.cross_entropy(scores, target, reduction="none")
        return scores
"""
TRAIN = """
import json
import pickle

import torch
from apex import amp
from network import Reader
from data import loader, decode, store

model = Reader().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
for x, y in loader:
    loss = model(x, y).mean()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    optimizer.zero_grad()

found = []
with torch.no_grad():
    for x, y in loader:
        CODE
"""


def said(code: str, level: str = "O2") -> list[str]:
    train = TRAIN.replace("LEVEL", level).replace("CODE", code.replace("\n", "\n        "))
    found = rewrite_files({"network.py": NETWORK, "train.py": train})
    assert found["train.py"].status == "migrated"
    return [f.message for r in found.values() for f in r.findings if f.code == "AMP535"]


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    "code",
    [
        "decode(model(x, indices=True)[0])",
        "decode(model(x, y))",
        "decode(model(x, target=y))",
        'decode(model(x, kind="features"))',
        'decode(model(x, None, False, "features").sum(1))',
    ],
)
def test_what_this_call_gives_is_float32_or_an_index(code: str, level: str) -> None:
    assert not said(code, level)


@pytest.mark.parametrize(
    "code",
    [
        "decode(model(x))",
        "decode(model(x, None))",
        "decode(model(x, indices=False))",
        'decode(model(x, kind="scores"))',
        "decode(model(x, indices=decode.indices))",
    ],
)
def test_what_another_call_gives_is_half(code: str) -> None:
    assert said(code)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("json.dump(model(x), store)", False),
        ("pickle.dump(model(x), store)", True),
        ("store.set_postfix(model(x))", False),
        ("store.step(model(x))", False),
        ("store.accuracy(model(x), y)", False),
        ("store.measure(model(x), y)", True),
        ("import copy\nstore.measure(copy.deepcopy(model(x)), y)", True),
        ("torch.cat([x, model(x)]).cpu().numpy()", False),
        ("torch.cat([model(x), model(x)]).float().numpy()", False),
    ],
)
def test_where_a_half_value_is_computed_in(code: str, told: bool) -> None:
    assert bool(said(code)) is told


HALF = """
import torch
from apex.fp16_utils import FP16_Optimizer, network_to_half

model = network_to_half(torch.nn.Linear(4, 2).cuda())
optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), static_loss_scale=128.0)
for x, y in loader:
    output = model(x)
    print(torch.nn.Softmax(dim=1)(output))
    loss = torch.nn.functional.cross_entropy(output, y)
    optimizer.zero_grad()
    optimizer.backward(loss)
    optimizer.step()
"""


def test_what_network_to_half_made_gave_half() -> None:
    found = rewrite_files({"train.py": HALF})["train.py"]
    assert found.status == "migrated"
    assert not [f for f in found.findings if f.code == "AMP535"]


SCALED = """
import torch
from apex import amp
from network import Reader
from data import loader

model = Reader().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
eps = 1e-8


def criterion(scores, y):
    norm = NORM
    scores = scores / (eps + norm)
    return torch.nn.functional.mse_loss(scores, y)


for x, y in loader:
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("norm", "level", "said"),
    [
        ("torch.norm(scores, p=2)", "O1", True),
        ("scores.norm()", "O1", True),
        ("scores.sum()", "O1", True),
        ("scores.norm(dim=1, keepdim=True)", "O1", False),  # which widens natively, too
        ("scores.sum(1, keepdim=True)", "O1", False),
        ("torch.norm(scores, p=2)", "O2", False),
        ("2.0", "O1", False),
    ],
)
def test_a_single_number_that_widened_under_o1(norm: str, level: str, said: bool) -> None:
    found = rewrite_files({"network.py": NETWORK, "train.py": SCALED.replace("LEVEL", level).replace("NORM", norm)})
    told = [f.message for r in found.values() for f in r.findings if f.code == "AMP535"]
    assert any("single float32 number" in message for message in told) is said
