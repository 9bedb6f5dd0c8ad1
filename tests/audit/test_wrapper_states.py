"""What an FP16_Optimizer's state had is not asked for where none is made any more."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of

HELPER = """
class Stepper:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.masters = None
        ASKED

    def step(self):
        self.optimizer.step()


def masters_of(state):
    return state.get("fp32_from_fp16")
"""
TRAIN = """
import torch
from apex.fp16_utils import FP16_Optimizer
from helper import Stepper

model = torch.nn.Linear(4, 2).cuda().half()
optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), dynamic_loss_scale=True)
stepper = Stepper(optimizer)
loss = model(torch.ones(3, 4).cuda().half()).float().sum()
optimizer.backward(loss)
stepper.step()
"""
AFTER = """
import torch
from helper import Stepper

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
stepper = Stepper(optimizer, scaler)
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(torch.ones(3, 4).cuda()).float().sum()
scaler.scale(loss).backward()
stepper.step()
"""
HELPED = (
    HELPER.replace("optimizer):", "optimizer, scaler):")
    .replace("= optimizer\n", "= optimizer\n        self.scaler = scaler\n")
    .replace("self.optimizer.step()", "self.scaler.step(self.optimizer)\n        self.scaler.update()")
)
ASKED = {
    "tested": "if 'fp32_from_fp16' in self.optimizer.state_dict():\n            self.masters = True",
    "in its keys": "if 'fp32_from_fp16' not in self.optimizer.state_dict().keys():\n            self.masters = True",
    "read": "self.masters = optimizer.state_dict()['fp32_from_fp16'][0]",
    "in a variable": "state = optimizer.state_dict()\n        self.masters = state.pop('loss_scaler', None)",
    "in a function": "self.masters = masters_of(self.optimizer.state_dict())",
}
OTHERS = {
    "nothing": "pass",
    "the optimizer's own": "self.masters = self.optimizer.state_dict()['param_groups']",
    "another mapping": "self.masters = {'loss_scaler': 1}['loss_scaler']",
}


def told(asked: str, after: str | None = None) -> list[int]:
    before = {"helper.py": HELPER.replace("ASKED", asked), "train.py": TRAIN}
    now = HELPED.replace("ASKED", after or asked)
    found = doubts_of(before, {"helper.py": now, "train.py": AFTER})
    return [d.line for d in found if d.code == "AMP707" and d.verdict == "refuse" and d.path == "helper.py"]


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_what_only_the_wrapper_had_is_asked_for(asked: str) -> None:
    assert len(told(asked)) == 1


@pytest.mark.parametrize("asked", OTHERS.values(), ids=OTHERS.keys())
def test_what_is_something_else(asked: str) -> None:
    assert not told(asked)


def test_what_asks_no_more() -> None:
    assert not told(ASKED["tested"], "self.masters = list(optimizer.param_groups)")


def test_an_optimizer_that_stays_wrapped() -> None:
    helper = HELPER.replace("ASKED", ASKED["tested"])
    changed = {"helper.py": helper.replace("None", "()")}
    found = doubts_of({"helper.py": helper, "train.py": TRAIN}, changed)
    assert not [d for d in found if d.code == "AMP707"]
