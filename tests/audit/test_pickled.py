"""A network that was made half and pickled whole is float32 in the file now (AMP531), and half in old files (AMP534)."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts_of

NETS = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.body(x)
"""
TRAIN = """
import argparse
import os
import torch
from apex.fp16_utils import FP16_Optimizer
from nets import Net

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--restart", action="store_true")
args = parser.parse_args()

if args.restart:
    model = LOADED
    CAST
else:
    model = Net()
if args.fp16:
    model = model.half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.fp16:
    optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
for x, y in loader:
    loss = model(x).float().sum()
    if args.fp16:
        optimizer.backward(loss)
    else:
        loss.backward()
    optimizer.step()
SAVE
"""
EVALUATE = """
import sys
import torch
LOAD
MORE
with torch.no_grad():
    for x, y in loader:
        print(model(X).argmax(1))
"""
SAVE = 'torch.save(model, os.path.join(args.dir, "model.pt"))'
OPENED = 'with open(args.dir + "/model.pt", "wb") as f:\n    torch.save(model, f)'
LOAD = 'model = torch.load("runs/model.pt")'
INITIALIZE = 'if args.fp16:\n    model, optimizer = amp.initialize(model, make(model), opt_level="O2")\n'
LEFT = {
    "from apex import amp\n": "",
    INITIALIZE: "",
    "from apex.fp16_utils import FP16_Optimizer\n": "",
    "if args.fp16:\n    model = model.half()\n": "HALF",
    "if args.fp16:\n    optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)\n": (
        'scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)\n'
    ),
    "    loss = model(x).float().sum()\n": (
        '    with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):\n        loss = model(x).float().sum()\n'
    ),
    "    if args.fp16:\n        optimizer.backward(loss)\n    else:\n        loss.backward()\n": (
        "    scaler.scale(loss).backward()\n"
    ),
    "    optimizer.step()\n": "    scaler.step(optimizer)\n    scaler.update()\n",
}


def found(evaluate: str = EVALUATE, half: str = "", train: str = TRAIN, **filled: str) -> list[Doubt]:
    texts = {"LOADED": "Net()", "CAST": "pass", "SAVE": SAVE, "LOAD": LOAD, "MORE": "", "(X)": "(x)"} | filled
    before = {"nets.py": NETS, "train.py": train, "evaluate.py": evaluate}
    after = train
    for old, new in LEFT.items():
        after = after.replace(old, new)
    assert "apex" not in after
    for name, text in texts.items():
        before = {path: t.replace(name, text) for path, t in before.items()}
        after = after.replace(name, text)
    return [
        d
        for d in doubts_of(before, {"train.py": after.replace("HALF", half)})
        if d.code in ("AMP531", "AMP534") and ("saves whole" in d.message or "whole network" in d.message)
    ]


LOGGED = 'with open("log.txt", "w") as log, torch.no_grad():\n    torch.save(model, args.dir + "/model.pt")'


@pytest.mark.parametrize("save", [SAVE, OPENED, LOGGED, 'torch.save({"net": model, "step": 1}, "out/model.pt")'])
def test_a_script_that_runs_what_was_saved_half_is_told(save: str) -> None:
    load = LOAD + '["net"]' if "net" in save else LOAD
    (doubt,) = found(SAVE=save, LOAD=load)
    assert (doubt.path, doubt.line, doubt.code, doubt.verdict) == ("evaluate.py", 7, "AMP531", "look")


@pytest.mark.parametrize(
    "load",
    [
        'with open(sys.argv[1] + "/model.pt", "rb") as f:\n    model = torch.load(f)',
        'model = torch.load(open("model.pt", "rb"), map_location="cpu")',
        'path = "model.pt"\nmodel = torch.load(f=path).cuda()',
    ],
)
def test_however_it_is_loaded(load: str) -> None:
    assert [d.path for d in found(LOAD=load)] == ["evaluate.py"]


@pytest.mark.parametrize(
    "filled",
    [
        {"LOAD": 'model = torch.load("other.pt")'},
        {"SAVE": 'torch.save(model.state_dict(), "model.pt")'},
        {"SAVE": 'torch.save(optimizer, "model.pt")'},
        {"SAVE": "torch.save(model, args.dir)"},
        {"SAVE": 'torch.save({"net": model}, "model.pt")', "LOAD": 'model = torch.load("model.pt")["other"]'},
        {"MORE": "model.half()"},
        {"LOAD": "from nets import Net\nmodel = Net()"},
        {"LOAD": f"{LOAD}\nregion = torch.autocast('cuda')\nregion.__enter__()"},
    ],
)
def test_what_is_another_file_or_half_as_before_is_not(filled: dict[str, str]) -> None:
    assert not found(**filled)


def test_half_inputs_of_such_a_network_raise() -> None:
    (doubt,) = found(**{"(X)": "(x.half())"})
    assert doubt.verdict == "review"
    assert "given x.half(), which is made half here, and raises" in doubt.message


def test_what_initialize_prepared_is_never_pickled() -> None:
    train = TRAIN.replace("from apex.fp16_utils import FP16_Optimizer", "from apex import amp")
    train = train.replace("if args.fp16:\n    model = model.half()\n", INITIALIZE)
    assert not found(train=train)


OLD = {"LOADED": 'torch.load("model.pt")', "SAVE": "pass"}


@pytest.mark.parametrize(
    ("cast", "half", "count"),
    [
        ("pass", "", 1),
        ("if not args.fp16:\n        model = model.float()", "", 1),
        ("model = model.float()", "", 0),
        ("model.float()", "", 0),
        ("pass", "if args.fp16:\n    model = model.float()\n", 0),
        ("pass", "if other:\n    model = model.float()\n", 1),
    ],
)
def test_weights_of_an_old_file_are_made_float32_before_they_are_trained(cast: str, half: str, count: int) -> None:
    told = found(half=half, CAST=cast, **OLD)
    assert [(d.path, d.line, d.code, d.verdict) for d in told] == [("train.py", 13, "AMP534", "review")] * count


def test_what_is_cast_where_it_is_loaded_or_is_no_whole_network_is_not_told() -> None:
    assert not found(LOADED='torch.load("model.pt").float()', SAVE="pass")
    assert not found(LOADED='Net()\n    model.load_state_dict(torch.load("model.pt"))', SAVE="pass")
