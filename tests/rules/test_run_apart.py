"""Networks of other functions than the one that trains, under the same name, that are made half to be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import rewrite, run_files

SOURCE = """
import json
import sys

import torch
from torch import nn
from apex.fp16_utils import FP16_Optimizer


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(2, 1)

    def forward(self, x):
        return self.out(x)

    @classmethod
    def saved(cls, state):
        model = cls()
        model.load_state_dict(state)
        return model


def show(model):
    return str(next(iter(model.state_dict().values())).dtype)


def fit(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        model(x).sum().backward()
        optimizer.step()


def train(loader, fp16):
    model = Net()
    if fp16:
        model.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if fp16:
        optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
    for x in loader:
        loss = model(x).sum()
        if fp16:
            optimizer.backward(loss)
        else:
            loss.backward()
        optimizer.step()
    return model.state_dict()


def test(state, x, fp16):
    model = Net.saved(state)
    if fp16:
        model.half()
    model.eval()
    USE
    return show(model)


state = train([torch.ones(1, 2)], len(sys.argv) > 2)
print(json.dumps(test(state, torch.ones(1, 2), True)))
"""
RUN = "with torch.no_grad():\n        y = model(x.to(next(model.parameters()).dtype))"


@pytest.mark.parametrize(
    ("use", "apart"),
    [
        (RUN, True),
        ("model = nn.DataParallel(model)", True),
        ("if model is None:\n        return None", True),
        ("fit(model, [x])", False),
        ("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    optimizer.step()", False),
        ("models.append(model)", False),
        ("learn(model)", False),
        ("return model", False),
    ],
)
def test_a_network_that_is_made_half_to_be_run(use: str, apart: bool) -> None:
    result = rewrite(SOURCE.replace("USE", use))
    told = [f for f in result.findings if "only run, by itself" in f.message]
    assert [(f.code, f.status) for f in told] == ([("AMP720", "note")] if apart else [])
    assert not apart or ("GradScaler" in (result.after or "") and "AMP534" not in {f.code for f in result.findings})


def test_it_stays_half(tmp_path: Path) -> None:
    after = rewrite(SOURCE.replace("USE", RUN)).after or ""
    assert after.count(".half()") == 1
    assert run_files(tmp_path, {"train.py": after}, "train.py") == "torch.float16"
