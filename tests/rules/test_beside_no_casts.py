"""A region that begins with what runs without casts: what follows it had casts, and keeps its region."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from apex import amp

seen = []


def main(device, full=True):
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for _ in range(2):
        x = torch.ones(3, 4)
        BARE
            seen.append(model(x).dtype)
        output = model(x)
        seen.append(output.dtype)
        loss = output.sum()
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
"""
BARE = ["with amp.disable_casts():", "with amp.disable_casts() as off:", "with torch.no_grad(), amp.disable_casts():"]


@pytest.mark.parametrize("bare", BARE)
def test_what_follows_runs_with_casts(bare: str) -> None:
    result = rewrite(PROGRAM.replace("BARE", bare), device="cpu")
    assert not [f for f in result.findings if f.code == "AMP531" or f.status == "manual"]
    names: dict[str, Any] = {}
    exec(result.after or "", names)
    names["main"]("cpu")
    assert names["seen"] == [torch.float32, torch.float16] * 2
