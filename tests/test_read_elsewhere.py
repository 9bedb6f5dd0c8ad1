"""Scripts that no import ties to a program, and that read the checkpoints which it saves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli_testing import run_json, write_tree

TRAIN = """
import torch
from apex import amp


def main(model, optimizer, loader):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, "last.pt")
"""
AVERAGE = """
import sys

import torch

total = {}
for path in sys.argv[1:]:
    for key, value in torch.load(path).items():
        if key in KEYS:
            continue
        for name, weight in value.items():
            total[name] = total.get(name, 0) + weight
"""


@pytest.mark.parametrize(("keys", "told"), [('["epoch", "amp"]', True), ('["amp", "scaler"]', False)])
def test_an_average_that_tells_the_old_key_from_all_others_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, told: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path, {"pkg/train.py": TRAIN, "tools/average.py": AVERAGE.replace("KEYS", keys)})
    code, report = run_json("rewrite", ".")
    found = {(f["path"], x["code"], x["line"]) for f in report["files"] for x in f["findings"] if x["code"] == "AMP431"}
    assert code == 0
    assert found == ({("tools/average.py", "AMP431", 9)} if told else set())


CALLED = """
import torch
from apex import amp


def fit(model, optimizer, loader, use_amp):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        if use_amp:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()


def main(model, optimizer, loader, use_amp):
    if use_amp:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    fit(model, optimizer, loader, use_amp)
"""
CALLS = ["import torch\n", "from train import fit\n", "model = torch.nn.Linear(2, 2)\n"]
CALLS += ["fit(model, torch.optim.SGD(model.parameters(), lr=0.1), [], False)\n"]


def test_a_notebook_that_nobody_named_is_a_caller_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not written, and what it calls goes on taking what it gives."""
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": CALLS}
    notebook = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    results = []
    for folder, path in (("one", "train.py"), ("all", ".")):
        write_tree(tmp_path / folder, {"pyproject.toml": "", "train.py": CALLED, "explore.ipynb": notebook})
        monkeypatch.chdir(tmp_path / folder)
        code, report = run_json("rewrite", path)
        assert code == 0
        assert Path("explore.ipynb").read_text() == notebook
        (said,) = [f["message"] for file in report["files"] for f in file["findings"] if f["code"] == "AMP220"]
        results.append((Path("train.py").read_text(), said))
    assert results[0] == results[1]
    assert "def fit(model, optimizer, loader, use_amp, *, scaler=None)" in results[0][0]
    assert "explore.ipynb" in results[0][1]
