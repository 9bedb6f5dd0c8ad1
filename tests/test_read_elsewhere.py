"""Scripts that no import ties to a program, and that read the checkpoints which it saves."""

from __future__ import annotations

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
