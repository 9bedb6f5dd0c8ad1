"""Networks that a program finds by a name which it puts together are run where it runs them."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told

TRAIN = """
import importlib
import torch
{imported}

def main(args, loader, optimizer):
    {made}
    {setup}
    for x, y in loader:
        {forward}
        optimizer.step()
"""
NET = """
import torch
from torch.nn import functional as F

class Net(torch.nn.Module):
    def forward(self, x, y):
        return F.binary_cross_entropy(x, y)
"""
SETUP = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O2")'
REGION = 'with torch.autocast("cuda", dtype=torch.float16):\n            loss = model(x, y)'
FIND = "import importlib\n\ndef find(path):\n    home, name = path.rsplit('.', 1)\n    return getattr({}, name)\n"
MADE = {
    "imported": "from nets.small import Net\n    model = Net()",
    "put together": 'model = importlib.import_module("nets." + args.net).Net()',
    "a name": 'path = f"nets.{args.net}"\n    module = importlib.import_module(path)\n    model = module.Net()',
    "getattr": 'model = getattr(importlib.import_module("nets." + args.net), args.kind)()',
    "getattr of what is imported": "from nets import small\n    model = getattr(small, args.kind)()",
    "a function": "from tools import find\n    Net = find(args.model)\n    model = Net()",
    "a name of one package": "from tools import within\n    model = within(args.model)()",
}


def banned(made: str, **files: str) -> list[tuple[int, str]]:
    before = TRAIN.format(imported="from apex import amp", made=made, setup=SETUP, forward="loss = model(x, y)")
    after = TRAIN.format(imported="", made=made, setup="pass", forward=REGION)
    tools = FIND.format("importlib.import_module(home)")
    tools += FIND.replace("find", "within").format("importlib.import_module('nets.' + home)")
    project = {"train.py": before, "tools.py": tools, "nets/__init__.py": "", "nets/small.py": NET} | files
    return told(doubts_of(project, {"train.py": after}), "AMP533")


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_what_a_network_computes_that_autocast_refuses(made: str) -> None:
    assert len(banned(made)) == 1


@pytest.mark.parametrize(
    ("made", "files"),
    [
        (
            'model = importlib.import_module("other." + args.net).Net()',
            {"other/plain.py": NET.replace("F.binary", "F.my")},
        ),
        ('model = importlib.import_module("nets." + args.net).Other()', {}),
        ('model = getattr(importlib.import_module("json"), args.net)()', {}),
        ("from tools import find\n    model = find(args.model)()", {"evaluate.py": "import nets.small\n"}),
    ],
    ids=["another package", "another class", "a library", "imported, and not found by name"],
)
def test_nor_of_what_such_a_name_cannot_mean(made: str, files: dict[str, str]) -> None:
    assert banned(made, **files) == []
