"""A program that only runs a model loads amp's state: it needs no scaler, and what else it asks of a checkpoint stays right."""

from __future__ import annotations

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import rewrite_files
from tests.rules.programs import APEX_LOOP, apex

TRAIN = apex(APEX_LOOP, tail='torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, "last.pt")\n')
INFER = """
import torch
from apex import amp
from project import args, build, loader

model = build()
if args.fp16:
    model = amp.initialize(model, opt_level="O1")
state = torch.load("last.pt")
model.load_state_dict(state["model"])
LOAD
for x in loader:
    print(model(x).sum())
"""
ASKED = [
    (
        "if not 'amp' in state.keys():\n    print('trained in float32')\nelse:\n    amp.load_state_dict(state['amp'])",
        "if not 'scaler' in state.keys():\n    print('trained in float32')\n",
    ),
    (
        "has_amp = 'amp' in state\nif args.fp16 and has_amp:\n    amp.load_state_dict(state['amp'])\nprint(has_amp)",
        "has_amp = 'scaler' in state\nprint(has_amp)\n",
    ),
    (
        "if 'amp' in state:\n    amp.load_state_dict(state['amp'])\n    print('scale')\nelif args.fp16:\n    raise KeyError('amp')",
        "if 'scaler' in state:\n    print('scale')\nelif args.fp16:\n",
    ),
    (
        "assert 'amp' in state or not args.fp16\nif args.fp16:\n    amp.load_state_dict(state['amp'])",
        "assert 'scaler' in state or not args.fp16\n",
    ),
]


def infer(load: str, *, train: bool = True, dtype: str = "float16") -> FileResult:
    files = {"infer.py": INFER.replace("LOAD", load), **({"train.py": TRAIN} if train else {})}
    return rewrite_files(files, dtype=dtype)["infer.py"]


@pytest.mark.parametrize(("load", "now"), ASKED)
def test_what_else_asks_for_the_entry_asks_for_the_new_one(load: str, now: str) -> None:
    result = infer(load)
    assert result.after is not None
    assert now in result.after
    assert "load_state_dict(state['amp'])" not in result.after
    (told,) = [f for f in result.findings if f.code == "AMP402"]
    assert told.review == "look"
    assert "asks for 'scaler' now" in told.message
    assert "amp-migrate checkpoint converts old ones" in told.message


@pytest.mark.parametrize(("load", "_"), ASKED)
@pytest.mark.parametrize(("train", "dtype"), [(False, "float16"), (True, "bfloat16")])
def test_it_asks_as_before_where_no_program_at_hand_saves_a_scaler(load: str, _: str, train: bool, dtype: str) -> None:
    result = infer(load, train=train, dtype=dtype)
    assert result.after is not None
    assert "'amp' in state" in result.after
    assert "scaler" not in result.after


@pytest.mark.parametrize(
    "load",
    [
        "if 'amp' in state:\n    amp.load_state_dict(state['amp'])",
        "if args.fp16:\n    if 'amp' in state:\n        amp.load_state_dict(state['amp'])",
        "if args.fp16 and 'amp' in state:\n    amp.load_state_dict(state['amp'])",
    ],
)
def test_a_test_for_the_load_alone_goes_with_it(load: str) -> None:
    result = infer(load)
    assert result.after is not None
    assert "in state" not in result.after
    assert [f.message for f in result.findings if f.code == "AMP402"] == ["taken out: there is no scaler"]
