"""A comment of several lines is about Apex where one of them is: AMP134."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

BEFORE = """
import torch
from apex import amp
from apex.parallel import DistributedDataParallel as DDP

def train(model, optimizer, loader):
    model, optimizer = amp.initialize(model, optimizer)
    COMMENT
    model = DDP(model, delay_allreduce=True)
    for x in loader:
        with amp.scale_loss(model(x).sum(), optimizer) as scaled:
            scaled.backward()
        optimizer.step()
"""
AFTER = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    model = DDP(model)
    for x in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize(
    ("comment", "gone"),
    [
        (
            "# By default Apex overlaps communication with\n    # computation in the backward pass,\n    # all of it",
            False,
        ),
        ("# overlaps communication with\n    # computation in the backward pass\n    # under Apex", False),
        ("# computation in the backward pass\n    # and nothing else", True),
        ("# under Apex\n\n    # computation in the backward pass\n    # and nothing else", True),
        ("x = 1  # under Apex\n    # computation in the backward pass\n    # and nothing else", True),
    ],
)
def test_a_comment_is_one_as_long_as_its_lines_follow_each_other(comment: str, gone: bool) -> None:
    after = AFTER.replace("    model = DDP", "    x = 1\n    model = DDP") if "x = 1" in comment else AFTER
    found = doubts(BEFORE.replace("COMMENT", comment), after)
    assert bool(told(found, "AMP134")) is gone
