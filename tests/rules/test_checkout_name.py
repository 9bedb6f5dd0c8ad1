"""Imports by way of the folder that the checkout lies in, or of one above it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli_testing import run_json, write_tree

TRAIN = """
import torch
from apex import amp
from IMPORT import *

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    optimizer.zero_grad()
test_time(model, loader)
"""
# What evaluates out of sight has its region where it is called.
AROUND = 'with torch.autocast("cuda", dtype=torch.float16):\n    test_time(model, loader)'
HELPERS = """
import torch
from data import build, loader


def test_time(model, batches):
    with torch.no_grad():
        return [model(x).argmax(1) for x, _ in batches]
"""


@pytest.mark.parametrize(
    ("folder", "name", "found"),
    [
        ("checkout", "checkout.lib.helpers", True),
        ("above/checkout", "above.checkout.lib.helpers", True),
        ("above/checkout", "checkout.lib.helpers", True),
        ("checkout", "lib.helpers", True),
        ("checkout", "elsewhere.lib.helpers", False),
        ("above/checkout", "above.lib.helpers", False),
    ],
)
def test_the_evaluation_of_a_file_named_by_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str, found: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = {"train.py": TRAIN.replace("IMPORT", name), "lib/helpers.py": HELPERS, "pyproject.toml": ""}
    write_tree(Path(), {f"{folder}/{path}": text for path, text in tree.items()})
    code, report = run_json("rewrite", folder)
    assert code == 0
    after = Path(folder, "lib/helpers.py").read_text()
    assert ("torch.autocast" in after) is found
    assert (AROUND in Path(folder, "train.py").read_text()) is not found, json.dumps(report)


OUTER = "import sys\n\nsys.path.append('/somewhere')\nfrom project_of_mine.data import build, loader\n" + TRAIN.replace(
    "IMPORT", "project_of_mine.helpers"
)
DATA = "from project_of_mine.nets import build\n\nloader = []\n"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, True),
        ({"data.py": "from project_of_mine.nets import *\n\nloader = []\n"}, True),
        ({"data.py": "from project_of_mine.nets import build, more\n\nloader = []\n"}, False),  # one that is not there
        ({"data.py": "from project_of_mine.other import build\n\nloader = []\n"}, False),  # a file that is not
        ({"train.py": OUTER.replace("sys.path.append('/somewhere')", "print(sys.argv)")}, False),  # installed
    ],
)
def test_a_project_that_is_a_package_by_a_name_which_its_folder_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], found: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    nets = "import torch\n\n\ndef build():\n    return torch.nn.Linear(4, 2)\n"
    helpers = HELPERS.replace("from data import build, loader\n", "")
    tree = {"train.py": OUTER, "data.py": DATA, "nets.py": nets, "helpers.py": helpers, "pyproject.toml": ""}
    write_tree(Path(), {f"checkout/{path}": text for path, text in {**tree, **change}.items()})
    code, report = run_json("rewrite", "checkout")
    assert code == 0
    assert ("torch.autocast" in Path("checkout/helpers.py").read_text()) is found, json.dumps(report)
    assert (AROUND in Path("checkout/train.py").read_text()) is not found, json.dumps(report)
