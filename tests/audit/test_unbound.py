"""What no import of Apex reached stands as it did (AMP134)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
import torch
from project import args, build, loader
IMPORT

def train(model, optimizer):
    OWN
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

def online(model, optimizer):
    for x in loader:
        loss = model(x).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("above", "own", "refused"),
    [
        ("", "from apex import amp", True),
        ("from apex import amp", "pass", False),
        ("global amp; from apex import amp", "pass", False),
        ("", "global amp; from apex import amp", False),
        ("", "from apex import amp; global amp", False),
        ("from tools import *", "from apex import amp", False),
    ],
)
def test_a_use_that_no_import_reaches(above: str, own: str, refused: bool) -> None:
    before = PROGRAM.replace("IMPORT", above).replace("OWN", own)
    scaled = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n            scaled_loss.backward()\n        optimizer.step()"
    after = before.replace(
        scaled, "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()"
    )
    after = after.replace('model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', "pass")
    after = after.replace("from apex import amp; global amp", "global amp; from apex import amp")
    after = after.replace("from apex import amp", 'scaler = torch.amp.GradScaler("cuda")')
    found = [d for d in doubts(before, after) if "raised a NameError with Apex, too" in d.message]
    assert [(d.line, d.verdict) for d in found] == ([(12, "refuse")] if refused else [])


def test_a_use_that_stays_is_right() -> None:
    before = PROGRAM.replace("IMPORT", "").replace("OWN", "from apex import amp")
    after = before.replace('model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', "pass")
    assert not [d for d in doubts(before, after.replace("from apex import amp", "pass")) if "NameError" in d.message]
