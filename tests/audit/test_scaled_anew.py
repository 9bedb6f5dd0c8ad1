"""A name that keeps the scaled loss of each batch is given a new loss first: it is not scaled twice (AMP231)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told
from tests.rules.helpers import rewrite

BEFORE = """
import torch
from apex import amp

model = torch.nn.Linear(4, 2).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
if args.fp16:
    model, opt = amp.initialize(model, opt, opt_level="O1")
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    if args.fp16:
        with amp.scale_loss(loss, opt) as loss:
            loss.backward()
    else:
        loss.backward()
    opt.step()
"""
AFTER = """
import torch

model = torch.nn.Linear(4, 2).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    SCALED
    loss.backward()
    scaler.step(opt)
    scaler.update()
"""


@pytest.mark.parametrize(
    ("scaled", "count"),
    [
        ("loss = scaler.scale(loss)", 0),
        ("loss = scaler.scale(loss)\n    loss = scaler.scale(loss)", 1),
        ("loss = scaler.scale(scaler.scale(loss))", 1),
    ],
)
def test_a_loss_that_each_batch_computes_is_scaled_once(scaled: str, count: int) -> None:
    found = doubts(BEFORE, AFTER.replace("SCALED", scaled))
    assert len([line for line, verdict in told(found, "AMP231") if verdict == "refuse"]) == count
    assert not [d for d in found if "more paths" in d.message]


def test_a_loss_of_before_the_loop_is_scaled_in_each_turn() -> None:
    start, end = AFTER.index("    with torch.autocast"), AFTER.index("    SCALED")
    after = f"{AFTER[:start]}{AFTER[end:]}".replace("for x", "loss = model(x).sum()\nfor x")
    assert told(doubts(BEFORE, after.replace("SCALED", "loss = scaler.scale(loss)")), "AMP231")


def test_a_plain_branch_beside_a_loss_that_is_scaled_under_its_own_name_is_migrated() -> None:
    result = rewrite(BEFORE)
    assert result.status == "migrated"
    assert "scaler.scale(loss)" in (result.after or "")
