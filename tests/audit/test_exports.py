"""Traces and exports of a model that was in half precision: AMP531."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

PROGRAM = """
import torch
from apex import amp

model = torch.nn.Linear(4, 2).cuda()
other = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
FIRST
INITIALIZE
for x, y in loader:
    REGION:
        loss = model(x).sum()
    STEP
THEN
"""
STEP = "with amp.scale_loss(loss, optimizer) as scaled:\n        scaled.backward()\n    optimizer.step()"
STEP_NOW = "scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()"
REGION = 'with torch.autocast("cuda", dtype=torch.float16)'


def found(then: str = "", first: str = "", level: str = "O1") -> list[tuple[int, str]]:
    whole = PROGRAM.replace("FIRST", first)
    initialize = f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")'
    before = whole.replace("INITIALIZE", initialize).replace("REGION", "if True").replace("STEP", STEP)
    after = whole.replace("INITIALIZE", "scaler = torch.amp.GradScaler()").replace("REGION", REGION)
    after = after.replace("STEP", STEP_NOW).replace("from apex import amp\n", "")
    return told(
        doubts(before.replace("THEN", then.replace("REGION", "if True")), after.replace("THEN", then)), "AMP531"
    )


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    "then",
    ["torch.jit.trace(model, x)", 'torch.onnx.export(model, x, "model.onnx")', "torch.export.export(model, (x,))"],
)
def test_what_is_written_down_is_float32_now(then: str, level: str) -> None:
    assert found(then, level=level) == [(15, "look")]
    assert not found(first=then, level=level)  # before Apex was set up
    assert not found(then.replace("model,", "other,"), level="O2")
    assert not found(then, level="O0")


def test_a_count_of_operations_is_none() -> None:
    assert not found("import thop\nthop.profile(model, inputs=(x,))")
