"""Where both branches of a test became one, what ran in either runs there: in half where it was, in float32 where it was (AMP531)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

BEFORE = """
import argparse
import torch
from apex import amp

def main(args, model, optimizer, loader):
    if args.amp:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        optimizer.zero_grad()
        if args.amp:
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss = model(x).sum()
            loss.backward()
        optimizer.step()
"""
AFTER = """
import argparse
import torch

def main(args, model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda", enabled=bool(args.amp))
    for x in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16ENABLED):
            loss = model(x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
CALLED = """
parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
model = torch.nn.Linear(2, 2).cuda()
main(parser.parse_args(), model, torch.optim.SGD(model.parameters(), lr=0.1), [])
"""


@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize(
    ("enabled", "gained"), [("", True), (", enabled=True", True), (", enabled=bool(args.amp)", False)]
)
def test_a_region_is_off_where_the_branch_that_went_was_float32(called: bool, enabled: str, gained: bool) -> None:
    end = CALLED if called else ""
    found = [d for d in doubts(BEFORE + end, AFTER.replace("ENABLED", enabled) + end) if d.code == "AMP531"]
    assert bool(found) is gained
    assert all("where not amp" in d.message and d.verdict == "review" for d in found)


def test_a_branch_with_a_region_of_its_own_was_half_in_it() -> None:
    """The native branch beside Apex's, each with its own condition."""
    own = BEFORE.replace(
        "        else:\n            loss = model(x).sum()\n",
        "        else:\n            with torch.autocast('cuda', dtype=torch.float16):\n                loss = model(x).sum()\n",
    )
    assert own != BEFORE
    found = doubts(own + CALLED, AFTER.replace("ENABLED", "") + CALLED)
    assert "AMP531" not in {d.code for d in found}
