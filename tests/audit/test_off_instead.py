"""A parameter that a disabled scaler stands in for, `if scaler is None: scaler = GradScaler(enabled=False)`: on each way it is
what the call there gives it."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, told

LOOP = """
import torch
from apex import amp


def train(model, optimizer, use):
    for x, y in [(torch.ones(3, 4), torch.ones(3, 2))]:
        loss = torch.nn.functional.mse_loss(model(x), y)
        if use:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()


if __name__ == "__main__":
    model = torch.nn.Linear(4, 2)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), False)
"""
AFTER = """
import torch


def train(model, optimizer, use, *, scaler=None):
    if scaler is None:
        scaler = torch.amp.GradScaler("cuda", enabled=False)
    for x, y in [(torch.ones(3, 4), torch.ones(3, 2))]:
        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    model = torch.nn.Linear(4, 2)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), False)
"""
START = """
import sys

import torch
from apex import amp
from loop import train

use = "--amp" in sys.argv
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if use:
    model, optimizer = amp.initialize(model, optimizer)
train(model, optimizer, use)
"""
STARTED = (
    START.replace("from apex import amp\n", "")
    .replace(
        "if use:\n    model, optimizer = amp.initialize(model, optimizer)\n",
        "scaler = torch.amp.GradScaler(enabled=use)\n",
    )
    .replace("optimizer, use)", "optimizer, use, scaler=scaler)")
)
GIVEN = {
    "none": ("False)", []),
    "None": ("False, scaler=None)", []),
    "one that is off": ('False, scaler=torch.amp.GradScaler("cuda", enabled=False))', []),
    "one that is on": ('False, scaler=torch.amp.GradScaler("cuda"))', [(7, "review")]),
}


@pytest.mark.parametrize(("given", "expected"), GIVEN.values(), ids=GIVEN.keys())
def test_on_each_way_the_scaler_is_what_the_call_gives(given: str, expected: list[tuple[int, str]]) -> None:
    after = AFTER.replace("lr=0.1), False)", f"lr=0.1), {given}")
    found = doubts_of({"loop.py": LOOP, "start.py": START}, {"loop.py": after, "start.py": STARTED})
    assert told(found, "AMP531") == expected


def test_a_start_that_hands_nothing_over_runs_in_float32_now() -> None:
    after = {"loop.py": AFTER, "start.py": STARTED.replace(", scaler=scaler", "")}
    assert told(doubts_of({"loop.py": LOOP, "start.py": START}, after), "AMP531") == [(7, "review")]


def test_a_scaler_that_is_on_in_place_of_none() -> None:
    after = AFTER.replace('GradScaler("cuda", enabled=False)', 'GradScaler("cuda")')
    found = doubts_of({"loop.py": LOOP, "start.py": START}, {"loop.py": after, "start.py": STARTED})
    assert told(found, "AMP531") == [(7, "review")]
