"""Texts that show how a checkpoint is loaded into a model that the program puts in no Sequential any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli_testing import run, run_json, write_tree

NETS = """
from torch import nn


def network_to_half(network):
    return nn.Sequential(nn.Identity(), network.half())
"""
TRAIN = """
import torch
from apex.fp16_utils import FP16_Optimizer
from nets import network_to_half

model = network_to_half(torch.nn.Linear(4, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = FP16_Optimizer(optimizer, static_loss_scale=128.0)
loss = model(torch.ones(3, 4).cuda()).float().sum()
optimizer.backward(loss)
optimizer.step()
torch.save(model.state_dict(), "net.pt")
"""
README = """
Load it:

```python
model = Net()
model = network_to_half(model)
model.load_state_dict(torch.load("net.pt"))
```

`network_to_half` is what we call before. def network_to_half(network): ...
"""


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def told(*args: str) -> list[tuple[str, int]]:
    files = run_json(*args)[1]["files"]
    return [(f["path"], x["line"]) for f in files for x in f["findings"] if x["code"] == "AMP854"]


def test_check_lists_the_line() -> None:
    write_tree(Path(), {"nets.py": NETS, "train.py": TRAIN, "README.md": README, "notes.txt": README})
    assert told("check", ".") == [("README.md", 6)]


def test_beside_what_names_apex_itself() -> None:
    write_tree(
        Path(), {"nets.py": NETS, "train.py": TRAIN, "README.md": README + "See https://github.com/NVIDIA/apex\n"}
    )
    assert told("check", ".") == [("README.md", 6), ("README.md", 11)]


def test_rewrite_says_so() -> None:
    write_tree(Path(), {"nets.py": NETS, "train.py": TRAIN, "README.md": README})
    shown = run("rewrite", ".").stdout
    assert "README.md:6: shows network_to_half" in shown
    assert "still name" not in shown


def test_a_program_that_keeps_it_keeps_its_recipe() -> None:
    write_tree(
        Path(),
        {
            "nets.py": NETS,
            "train.py": TRAIN.replace("optimizer.step()", "optimizer.fp16_groups()"),
            "README.md": README,
        },
    )
    assert not told("check", ".")
