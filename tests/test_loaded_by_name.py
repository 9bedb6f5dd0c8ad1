"""What a program loads by a name that it puts together, or reads in a setting, is read as what it imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli_testing import run_json

TRAIN = """
import torch
from apex import amp
{imported}

def main(args, loader):
    model = {made}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
"""
TOOLS = """
def find(name):
    parts = name.split(".")
    found = __import__(parts[0])
    for part in parts[1:]:
        found = getattr(found, part)
    return found
"""
NET = """
import torch
from nets.parts import Mix

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = Mix()

    def forward(self, x):
        return self.mix(x)

if __name__ == "__main__":
    print(Net()(torch.ones(2, 2)))
"""
PARTS = """
import torch

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.mm(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient.mm(x.t()) + x.t().mm(gradient)

class Mix(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 2))

    def forward(self, x):
        return Twice.apply(torch.einsum("ij,jk->ik", x, self.weight))
"""
BY_SETTING = ("from tools import find", "find(args.model)()")


def codes(
    monkeypatch: pytest.MonkeyPatch, folder: Path, imported: str, made: str, setting: str = "model: nets.small.Net\n"
) -> dict[str, set[str]]:
    """The codes that are said of each file."""
    (folder / "nets").mkdir()
    files = {
        "train.py": TRAIN.format(imported=imported, made=made),
        "tools.py": TOOLS,
        "config.yaml": setting,
        "nets/__init__.py": "from . import small\n",
        "nets/small.py": NET,
        "nets/parts.py": PARTS,
        ".git": "",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    _, report = run_json("rewrite", "--check", ".")
    return {f["path"]: {x["code"] for x in f["findings"]} for f in report["files"]}


@pytest.mark.parametrize(
    ("imported", "made"),
    [
        BY_SETTING,
        ("import importlib", "importlib.import_module('nets.' + args.model).Net()"),
        ("from importlib import import_module", "getattr(import_module(f'nets.{args.model}'), 'Net')()"),
        ("from nets.small import Net", "Net()"),
    ],
    ids=["a setting", "put together", "formatted", "imported"],
)
def test_what_its_parts_compute_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, imported: str, made: str
) -> None:
    found = codes(monkeypatch, tmp_path, imported, made)
    # einsum, which O1 left alone, and the function of its own, whose backward is to run as its forward
    assert found["nets/parts.py"] == {"AMP535", "AMP520"}


def test_not_of_what_nothing_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "nets/parts.py" not in codes(monkeypatch, tmp_path, *BY_SETTING, setting="model: other.small.Net\n")


@pytest.mark.parametrize(
    "made",
    [
        "importlib.import_module(f'torchvision.models.{args.model}').Net()",
        "importlib.import_module('torchvision.models.' + args.model).Net()",
        "importlib.import_module('torchvision.models.%s' % args.model).Net()",
    ],
)
def test_nor_of_what_begins_with_a_package_from_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: str
) -> None:
    found = codes(monkeypatch, tmp_path, "import importlib", made)
    assert "nets/parts.py" not in found
