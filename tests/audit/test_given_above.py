"""A name is what it was given last on the way to what reads it, unless something between may have given it another value."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
import torch
from apex import amp

def main(args, model, optimizer, x):
    mixed = False
    ABOVEmodel, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    loss = model(x).sum()
    if mixed:
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
    else:
        loss.backward()
    optimizer.step()
"""
AFTER = """
import torch

def main(args, model, optimizer, x):
    mixed = False
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    ABOVEscaler = torch.amp.GradScaler("cuda", enabled=True)
    with torch.autocast("cuda", dtype=torch.float16, enabled=mixed):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
TRIED = """try:
        level = args.level
        mixed = True
    except AttributeError:
        level = None
    WHERE:
        print(level)
        if mixed:
            """


@pytest.mark.parametrize("where", ["else", "finally"])
def test_what_stands_in_another_part_of_a_try_ran_before(where: str) -> None:
    above = TRIED.replace("WHERE", where)
    found = doubts(BEFORE.replace("ABOVE", above), AFTER.replace("ABOVE", above))
    assert [d.message for d in found if d.code == "AMP531"] == []
