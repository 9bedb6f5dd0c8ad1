"""A checkpoint that is asked for the scaler's state by a name that is spoken of elsewhere."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, program

TRAIN = """
import torch
from apex import amp
from project import model, optimizer
from keeper import load

model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, "last.pt")
checkpoint = torch.load("last.pt")
parts = {"model": model, "amp": amp}
ASKS
"""
KEEPER = """
import torch

def load(path, names=None):
    checkpoint = torch.load(path)
    for name in names:
        if name in checkpoint:
            print(checkpoint[name])

def one(path, name="model"):
    return torch.load(path)[name]
"""
NATIVE = (
    TRAIN.replace("from apex import amp\n", "")
    .replace(
        'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', 'scaler = torch.amp.GradScaler("cuda")'
    )
    .replace('"amp": amp.state_dict()', '"scaler": scaler.state_dict()')
    .replace('"amp": amp}', '"scaler": scaler}')
)


def said(asks: str, asked_after: str | None = None) -> list[tuple[str, int, str]]:
    before = {"train.py": program(TRAIN.replace("ASKS", asks)), "keeper.py": program(KEEPER)}
    after = {"train.py": program(NATIVE.replace("ASKS", asked_after or asks)), "keeper.py": program(KEEPER)}
    found = [d for d in doubts_of(before, after) if "asks a checkpoint for" in d.message]
    return [(d.path, d.line, d.verdict) for d in found]


ASKING = [
    'load("last.pt", ["model", "amp"])',
    'for name in ["model", "amp"]:\n    parts[name].load_state_dict(checkpoint[name])',
    'NAMES = ("model", "amp")\nfor name in NAMES:\n    print(checkpoint.get(name))',
    'key = "amp"\nif key in checkpoint:\n    print(key)',
    'import keeper\nkeeper.one("last.pt", "amp")',
]


@pytest.mark.parametrize("asks", ASKING)
def test_what_is_saved_has_none_by_that_name(asks: str) -> None:
    found = said(asks)
    assert {(path, verdict) for path, _, verdict in found} == {("train.py", "refuse")}
    assert not said(asks, asks.replace('"amp"', '"scaler"'))


@pytest.mark.parametrize(
    "asks",
    [
        'load("last.pt", ["model", "amp", "scaler"])',  # of old and new files
        'for name in ["model", "amp"]:\n    print(name)',
        'settings = {"amp": 1}\nfor name in ["amp"]:\n    print(settings[name])',
        'load("last.pt", ["model"])',
    ],
)
def test_what_is_asked_of_something_else_or_for_both(asks: str) -> None:
    assert not said(asks)
