"""What the audit follows once: functions as they were, turns of loops that change nothing, what no late attribute reached."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from amp_migrate.audit.halves.bodies import Body
from amp_migrate.audit.program.module import Function
from amp_migrate.audit.stepping import traces
from tests.audit.helpers import doubts, program

BEFORE = """
import torch
from apex import amp


def train(model, optimizer, loader):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


def finetune(model, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
AFTER = """
import torch


def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def finetune(model, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


def traced(before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions whose traces are compared."""
    asked: list[object] = []
    compared = traces._compared
    monkeypatch.setattr(traces, "_compared", lambda c, o, n: (asked.append(n.owner), compared(c, o, n))[1])
    doubts(before, after)
    return [owner.name for owner in asked if isinstance(owner, Function)]


def test_only_functions_that_changed_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert traced(BEFORE, AFTER, monkeypatch) == ["train"]


def test_a_function_as_it_was_is_traced_where_it_does_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it steps is another thing now, though it is written as it was."""
    made = "opt = torch.optim.SGD([], lr=0.1)\n\n\ndef last():\n    opt.step()\n"
    after = AFTER + made.replace("torch.optim.SGD([], lr=0.1)", "object()")
    assert traced(BEFORE + made, after, monkeypatch) == ["train", "last"]


def test_a_step_that_a_function_loses_is_told() -> None:
    after = program(AFTER)
    lost = after[: after.rindex("        optimizer.step()")]
    assert "a step of this function would be lost" in {d.message for d in doubts(BEFORE, lost)}


NESTED = """
def {name}(model, loader):
    with torch.no_grad(){region}:
        out = model(loader)
    total = 0
{loops}
    return total
"""


def nested(depth: int) -> tuple[str, str]:
    loops = "".join(f"{'    ' * (n + 1)}for i{n} in range(3):\n" for n in range(depth))
    loops += "    " * (depth + 1) + "total = total + out.float().sum()\n"
    before = program(BEFORE) + NESTED.format(name="test", region="", loops=loops)
    region = ', torch.autocast("cuda", dtype=torch.float16)'
    return before, program(AFTER) + NESTED.format(name="test", region=region, loops=loops)


def followed(depth: int) -> int:
    """How many statements are followed for halves."""
    count = 0

    def counted(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is Body.run.__code__

    sys.setprofile(counted)
    try:
        doubts(*nested(depth))
    finally:
        sys.setprofile(None)
    return count


def test_loops_in_loops_are_no_power_of_their_depth() -> None:
    assert followed(8) < 3 * followed(4)
