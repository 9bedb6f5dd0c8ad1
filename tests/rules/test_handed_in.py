"""A function that a user hands in to run the model in its own way, beside the plain forward, runs under autocast too."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told
from tests.rules.helpers import check_files

ENGINE = """
import torch
{imports}

class Engine:
    def __init__(self, model, optimizer, device, model_fn=None):
        {setup}
        self.device = device
        self.model_fn = model_fn

    def train(self, loader):
        for batch in loader:
            self.optimizer.zero_grad()
            {forward}
            {backward}
            self.optimizer.step()
"""
BRANCHES = """if self.model_fn is None:
                loss = self.model(batch)
            else:
                loss = {call}"""
BEFORE = {
    "imports": "from apex import amp",
    "setup": 'self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")',
    "backward": "with amp.scale_loss(loss, self.optimizer) as scaled:\n                scaled.backward()",
}


@pytest.mark.parametrize(
    "call",
    [
        "self.model_fn(batch, self.device, self.model)",
        "self.model_fn(self.model, batch)",
        "self.model_fn(batch, model=self.model)",
    ],
)
def test_both_ways_to_the_loss_stand_in_one_region(call: str) -> None:
    after = check_files({"engine.py": ENGINE.format(forward=BRANCHES.format(call=call), **BEFORE)})["engine.py"]
    region = after.index("with torch.autocast")
    assert region < after.index("if self.model_fn is None") < after.index(call) < after.index(".backward()")
    assert after.count("torch.autocast") == 1


def test_what_prepares_a_batch_with_the_model_in_hand_is_no_forward() -> None:
    forward = "batch = self.model_fn(batch, self.device)\n            loss = self.model(batch)"
    after = check_files({"engine.py": ENGINE.format(forward=forward, **BEFORE)})["engine.py"]
    assert after.index("batch = self.model_fn(batch, self.device)") < after.index("torch.autocast")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("self.model_fn(batch, self.device, self.model)", [(16, "review")]),
        ("self.model_fn(batch, self.device)", []),
    ],
)
def test_the_audit_tells_of_one_that_is_left_outside(call: str, expected: list[tuple[int, str]]) -> None:
    before = ENGINE.format(forward=BRANCHES.format(call=call), **BEFORE)
    plain = "                loss = self.model(batch)"
    inside = '                with torch.autocast("cuda", dtype=torch.float16):\n                    loss = self.model(batch)'
    after = ENGINE.format(
        forward=BRANCHES.format(call=call).replace(plain, inside),
        imports="",
        setup='self.model, self.optimizer, self.scaler = model, optimizer, torch.amp.GradScaler("cuda")',
        backward="self.scaler.scale(loss).backward()",
    )
    assert told(doubts(before, after), "AMP531") == expected
