"""A forward under a condition that excludes the switch never ran in mixed precision: it gets no region."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite_files

PROGRAM = """
import argparse

import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--net", default="small", choices=["small", "large"])
parser.add_argument("--half", action="store_true")
args = parser.parse_args()

model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.net == "large":
    if args.half:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

for images in loader:
    if FIRST:
        with torch.no_grad():
            boxes = model(images)["boxes"].cpu().numpy()
    else:
        optimizer.zero_grad()
        loss = model(images).sum()
        if args.half and args.net == "large":
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
"""


def rewritten(first: str) -> tuple[str, list[str]]:
    results = rewrite_files({"train.py": textwrap.dedent(PROGRAM.replace("FIRST", first)).lstrip()})
    return results["train.py"].after or "", [f.code for f in results["train.py"].findings]


@pytest.mark.parametrize("first", ['args.net == "small"', 'args.net != "large"', "not args.half"])
def test_a_region_that_would_be_off_is_not_written(first: str) -> None:
    after, codes = rewritten(first)
    assert f"    if {first}:\n        with torch.no_grad():\n            boxes = model(images)" in after
    assert after.count("torch.autocast(") == 1
    assert "AMP535" not in codes
    assert codes.count("AMP501") == 1


@pytest.mark.parametrize("first", ["args.verbose", 'args.net in ("small", "large")', 'args.kind == "small"'])
def test_one_that_may_be_on_is(first: str) -> None:
    after, _ = rewritten(first)
    assert after.count("torch.autocast(") == 2
