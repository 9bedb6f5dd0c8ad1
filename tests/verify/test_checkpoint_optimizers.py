"""The state of FusedAdam, as torch's optimizers load it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from amp_migrate.checkpoint.files import convert_file
from amp_migrate.checkpoint.states import CheckpointError
from amp_migrate.shim.apex.optimizers.fused_adam import FusedAdam
from tests.cli_testing import run


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def train(net: torch.nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> list[float]:
    losses = []
    for i in range(first, last):
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(i))
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def saved(path: Path, groups: int = 1) -> list[float]:
    """A checkpoint after five steps of FusedAdam; the losses of the five after it."""
    net = model()
    layers = [net[0], net[2]] if groups == 2 else [net]
    optimizer = FusedAdam([{"params": list(m.parameters())} for m in layers], lr=0.05, weight_decay=0.1)
    train(net, optimizer, 0, 5)
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, path)
    return train(net, optimizer, 5, 10)


@pytest.mark.parametrize("groups", [1, 2])
def test_adamw_goes_on_where_fused_adam_was(tmp_path: Path, groups: int) -> None:
    expected = saved(tmp_path / "old.pt", groups)
    _, steps = convert_file(tmp_path / "old.pt", tmp_path / "new.pt")
    assert [(s.path, s.steps) for s in steps] == [("optimizer", (5,) * groups)]
    new: dict[str, Any] = torch.load(tmp_path / "new.pt", weights_only=True)
    net = model()
    net.load_state_dict(new["model"])
    layers = [net[0], net[2]] if groups == 2 else [net]
    optimizer = torch.optim.AdamW([{"params": list(m.parameters())} for m in layers], lr=0.05, weight_decay=0.1)
    optimizer.load_state_dict(new["optimizer"])
    assert train(net, optimizer, 5, 10) == pytest.approx(expected, rel=1e-5)


def test_without_conversion_the_state_does_not_load(tmp_path: Path) -> None:
    saved(tmp_path / "old.pt")
    old = torch.load(tmp_path / "old.pt", weights_only=True)
    optimizer = torch.optim.AdamW(model().parameters())
    with pytest.raises(KeyError, match="step"):
        optimizer.load_state_dict(old["optimizer"])


def test_a_state_of_torchs_own_is_left(tmp_path: Path) -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    train(net, optimizer, 0, 2)
    torch.save({"optimizer": optimizer.state_dict()}, tmp_path / "old.pt")
    with pytest.raises(CheckpointError, match="no Apex state"):
        convert_file(tmp_path / "old.pt", tmp_path / "new.pt")


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    saved(tmp_path / "old.pt")
    old, new = str(tmp_path / "old.pt"), str(tmp_path / "new.pt")
    done = run("checkpoint", old, new)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"1 FusedAdam state converted: {new}",
        "  optimizer: step 5 kept for each parameter",
    ]
    as_json = json.loads(run("checkpoint", old, new, "--format", "json").stdout)
    assert as_json["optimizers"] == [{"path": "optimizer", "steps": [5]}]
    assert as_json["scalers"] == []
