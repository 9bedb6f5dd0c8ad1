"""A checkpoint of a run without mixed precision, resumed with it: the state of a disabled scaler is empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.helpers import doubts
from tests.rules.helpers import rewrite, run_files

SOURCE = """
import json
import os

import torch
from apex.fp16_utils import FP16_Optimizer


def load(path, model, optimizer=None):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    if optimizer:
        optimizer.load_state_dict(state["optimizer"])
    return state


def train(fp16, resume):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if fp16:
        optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
    if resume:
        load("last.pt", model, optimizer)
    loss = model(torch.ones(1, 2)).sum()
    if fp16:
        optimizer.backward(loss)
    else:
        loss.backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")


FIRST
print(json.dumps(sorted(load("last.pt", torch.nn.Linear(2, 1)))))
"""


@pytest.mark.parametrize("first", [True, False])
def test_what_another_precision_saved_is_resumed(tmp_path: Path, first: bool) -> None:
    runs = f"train({first}, False)\ntrain({not first}, True)\ntrain({first}, True)"
    after = rewrite(SOURCE.replace("FIRST", runs), device="cpu").after or ""
    assert 'if scaler is not None and state.get("scaler"):' in after
    assert run_files(tmp_path, {"train.py": after}, "train.py") == ["model", "optimizer", "scaler"]


LOAD = """
    import torch

    def main(args, model, optimizer, loader):
        scaler = torch.amp.GradScaler("cuda", enabled=ENABLED)
        state = torch.load(args.path)
        ASKED
        SAVE
"""
SAVE = 'torch.save({"scaler": scaler.state_dict()}, args.path)'
PLAIN = 'if "scaler" in state:\n            scaler.load_state_dict(state["scaler"])'


@pytest.mark.parametrize(
    ("enabled", "asked", "save", "told"),
    [
        ("args.fp16", PLAIN, SAVE, True),
        ("args.fp16", 'scaler.load_state_dict(state["scaler"])', SAVE, True),
        ("args.fp16", PLAIN, f"if args.fp16:\n            {SAVE}", False),
        ("args.fp16", PLAIN.replace('"scaler" in state', 'state.get("scaler")'), SAVE, False),
        ("args.fp16", PLAIN.replace('"scaler" in state', '"scaler" in state and state["scaler"]'), SAVE, False),
        ("args.fp16", PLAIN.replace('if "scaler" in state', "if args.fp16"), SAVE, True),
        ("True", PLAIN, SAVE, False),
        ("args.fp16", PLAIN, SAVE.replace("scaler.state", "args.scaler.state"), False),
    ],
)
def test_the_audit_sees_an_empty_state(enabled: str, asked: str, save: str, told: bool) -> None:
    after = LOAD.replace("ENABLED", enabled).replace("ASKED", asked).replace("SAVE", save)
    before = """
        from apex import amp
        import torch

        def main(args, model, optimizer, loader):
            state = torch.load(args.path)
        """
    found = [d for d in doubts(before, after) if d.code == "AMP431"]
    assert [d.verdict for d in found] == ["review"] * told
