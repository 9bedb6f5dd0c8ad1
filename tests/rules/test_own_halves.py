"""Programs that work in half by themselves where they do not use Apex: a cast that makes up for Apex is none there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import rewrite, run_alone

PROGRAM = """
import argparse

import torch
import torch.nn.functional as F
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--apex", action="store_true")
parser.add_argument("--half", action="store_true")
args = parser.parse_args(ARGV)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 4))
head = torch.nn.Linear(4, 2)
if args.apex:
    model = amp.initialize(model, opt_level="LEVEL")
HALVES
with torch.no_grad():
    for images in [torch.ones(2, 3, 16, 16)]:
        LINES
"""
OWN = "elif args.half:\n    model, head = model.half(), head.half()"
HALF = "if args.half:\n            images = images.half()"
RESIZED = (
    HALF,
    'images = F.interpolate(images, (8, 8), mode="nearest")',
    "output = model(images)",
    "print(output.dtype)",
)
GOING_ON = (
    HALF,
    "images = images[:, :, ::2, ::2]",
    "output = model(images)",
    "output = torch.sigmoid(output)",
    "print(head(output).dtype)",
)


def program(*lines: str, level: str = "O1", halves: str = OWN, argv: str = "[]") -> str:
    text = PROGRAM.replace("LINES", "\n        ".join(lines)).replace("LEVEL", level).replace("HALVES", halves)
    return text.replace("ARGV", argv)


@pytest.mark.parametrize("halves", [OWN, OWN.replace("elif", "if"), OWN.replace("elif", "if not args.apex and")])
@pytest.mark.parametrize(("level", "lines"), [("O1", RESIZED), ("O2", GOING_ON)])
def test_a_run_without_apex_computes_in_half_as_it_did(
    tmp_path: Path, level: str, lines: tuple[str, ...], halves: str
) -> None:
    result = rewrite(program(*lines, level=level, halves=halves, argv='["--half"]'))
    assert result.after is not None
    assert not [f for f in result.findings if f.code == "AMP546"]
    assert run_alone(tmp_path, result.after) == ("torch.float16", "")


@pytest.mark.parametrize(
    "halves",
    [
        "else:\n    dtype = torch.half if args.half else torch.float32\n    model, head = model.to(dtype), head.to(dtype)",
        "elif args.half:\n    for net in (model, head):\n        net.to(torch.float16)\n        net(torch.zeros(1, 3, 8, 8))",
        "elif args.half:\n    model = model.eval().to(dtype=torch.half)",
    ],
)
def test_however_the_weights_are_made_half(halves: str) -> None:
    result = rewrite(program(*RESIZED, halves=halves))
    assert "images.to(dtype=torch.float32 if args.apex else None)" in (result.after or "")


@pytest.mark.parametrize(
    "halves",
    [
        "",
        "bank = torch.zeros(4).half()",  # no network
        "if args.apex:\n    head = head.half()",  # with Apex alone
        "print(next(model.parameters()).dtype == torch.half)",
        "images = torch.zeros(2)\nmean = images.mean()\nif args.half:\n    mean = mean.half()",  # no network either
    ],
)
def test_elsewhere_the_cast_is_plain(halves: str) -> None:
    lines = ("output = model(images[:, :, ::2, ::2])", "print(F.softmax(output, dim=1))")
    assert "F.softmax(output.float(), dim=1)" in (rewrite(program(*lines, halves=halves)).after or "")


def test_a_set_up_in_every_run_leaves_the_cast_plain() -> None:
    text = program("print(F.softmax(model(images), dim=1))", halves="if args.half:\n    head = head.half()")
    text = text.replace("if args.apex:\n    model = amp", "model = amp")
    assert "float32 if" not in (rewrite(text).after or "float32 if")


MOVE = """
def move(x):
    x = STEP
    if torch.cuda.is_available():
        x = x.cuda(non_blocking=True)
    return x
"""


@pytest.mark.parametrize(("step", "plain"), [("x.contiguous()", True), ("prepared(x)", False)])
def test_what_a_function_gives_that_tensors_alone_are_given_to_is_no_network(step: str, plain: bool) -> None:
    halves = MOVE.replace("STEP", step) + "\n\nmodel(move(torch.ones(2, 3, 8, 8)).half())\nmove(head)"
    lines = ("output = model(images[:, :, ::2, ::2])", "print(F.softmax(output, dim=1))")
    after = rewrite(program(*lines, halves=halves)).after or ""
    assert ("F.softmax(output.float(), dim=1)" in after) is plain
