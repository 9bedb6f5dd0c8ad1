"""Models that go to code out of sight, or come from it: AMP232, AMP535."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

PROGRAM = """
import numpy as np
import torch
HEAD
from robust import attack, make_net, make_head
from torch.nn.utils import parameters_to_vector

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = make_head()
        self.body = torch.nn.Linear(4, 4)

    def forward(self, x):
        out = self.inner(x)
        FORWARD

def own(net, x):
    return x

def main(loader):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    INITIALIZE
    for x in loader:
        REGION:
            out = model(x)
            INSIDE
            loss = out.sum()
        STEP

main(load())
"""


def found(code: str, inside: str = "pass", forward: str = "return out", now: str = "") -> list[tuple[str, str]]:
    """Verdicts and messages of one code for a program whose region holds `inside`."""
    whole = PROGRAM.replace("FORWARD", forward)
    before = whole.replace("HEAD", "from apex import amp").replace("REGION", "if True").replace("INSIDE", inside)
    before = before.replace("INITIALIZE", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")')
    before = before.replace(
        "STEP", "with amp.scale_loss(loss, optimizer) as s:\n            s.backward()\n        optimizer.step()"
    )
    after = whole.replace("HEAD\n", "").replace("INITIALIZE", "scaler = torch.amp.GradScaler()")
    after = after.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16)').replace("INSIDE", now or inside)
    after = after.replace(
        "STEP", "scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()"
    )
    return [(d.verdict, d.message) for d in doubts(before, after) if d.code == code and "out of sight" in d.message]


@pytest.mark.parametrize(
    "call", ["x = attack(model, x)", "x = attack(net=model, x=x)", "other = model\n            x = attack(other, x)"]
)
def test_a_function_out_of_sight_in_the_region(call: str) -> None:
    ((verdict, message),) = found("AMP232", call)
    assert verdict == "look"
    assert "leaves in the model" in message


@pytest.mark.parametrize(
    "call", ["x = attack(x)", "x = own(model, x)", "v = parameters_to_vector(model.parameters())", "x = model(x)"]
)
def test_what_is_in_sight_or_is_given_no_model(call: str) -> None:
    assert not found("AMP232", call)


@pytest.mark.parametrize("off", ["torch.no_grad()", "torch.set_grad_enabled(False)", "torch.inference_mode()"])
def test_no_backward_runs_without_gradients(off: str) -> None:
    assert not found("AMP232", f"with {off}:\n                x = attack(model, x)")


def test_nor_where_every_call_of_a_function_is_without() -> None:
    whole = (
        PROGRAM.replace("        STEP", "").replace("INSIDE", "x = attack(model, x)").replace("FORWARD", "return out")
    )
    for end, told in (
        ("with torch.no_grad():\n    main(load())", 0),
        ("main(load())\nwith torch.no_grad():\n    main(load())", 1),
    ):
        program = whole.replace("\nmain(load())", f"\n{end}")
        before = program.replace("HEAD", "from apex import amp").replace("REGION", "if True")
        before = before.replace("INITIALIZE", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")')
        after = program.replace("HEAD\n", "").replace("INITIALIZE", "scaler = torch.amp.GradScaler()")
        after = after.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16)')
        assert len([d for d in doubts(before, after) if d.code == "AMP232" and "out of sight" in d.message]) == told


def test_a_part_of_the_model_that_is_out_of_sight() -> None:
    ((verdict, message),) = found("AMP535", forward="self.kept = out.detach().cpu().numpy()\n        return out")
    assert verdict == "look"
    assert "out of sight gives this" in message
    assert not found("AMP535", forward="self.kept = out.float().cpu().numpy()\n        return out")
    assert not found("AMP535", forward="self.kept = out.argmax(1).cpu().numpy()\n        return out")
    assert not found("AMP535", forward="self.kept = x.cpu().numpy()\n        return out")  # what it was given


def test_a_net_that_a_class_out_of_sight_makes() -> None:
    learner = """
import torch
HEAD
from learners import Learner

class Mine(Learner):
    def __init__(self, params):
        super().__init__(params)
        INITIALIZE

    def step(self, x, y):
        REGION:
            out = self.net(x)
            loss = torch.nn.functional.cross_entropy(out, y)
        STEP
        return CAST

Mine({}).step(load(), load())
"""
    step = "with amp.scale_loss(loss, self.optimizer) as s:\n            s.backward()\n        self.optimizer.step()"
    setup = 'self.net, self.optimizer = amp.initialize(self.net, self.optimizer, opt_level="O2")'
    now = "self.scaler.scale(loss).backward()\n        self.scaler.step(self.optimizer)\n        self.scaler.update()"

    def said(cast: str, before_cast: str) -> list[str]:
        before = learner.replace("HEAD", "from apex import amp").replace("INITIALIZE", setup).replace("STEP", step)
        before = before.replace("REGION", "if True").replace("CAST", before_cast)
        after = (
            learner.replace("HEAD\n", "")
            .replace("INITIALIZE", "self.scaler = torch.amp.GradScaler()")
            .replace("STEP", now)
        )
        after = after.replace("REGION", 'with torch.autocast("cuda", dtype=torch.float16)').replace("CAST", cast)
        return [d.message for d in doubts(before, after) if d.code == "AMP535"]

    (message,) = said("self.transform(out)", "self.transform(out)")
    assert "self.transform is out of sight" in message
    assert "a network with float32 weights raises on it there" in message
    (message,) = said("self.transform(out.cpu())", "self.transform(out.cpu())")  # where the weights are not
    assert "weights" not in message
    (message,) = said(
        "self.axes[1].imshow(out)", "self.axes[1].imshow(out)"
    )  # a method of what is called as no network is
    assert "self.axes[1].imshow is out of sight" in message
    assert "weights" not in message
    (message,) = said("self.tools.encode(out)", "self.tools.encode(out)")
    assert "a network with float32 weights raises on it there" in message
    (message,) = said("self.measure(out, y)", "self.measure(out, y)")  # of two it measures something
    assert "weights" not in message
    (message,) = said("self.criterion(out)", "self.criterion(out)")
    assert "out of sight" in message
    assert "weights" not in message
    assert not said("self.transform(out.float())", "self.transform(out)")
    for written in (
        "self.kept.copy_(out)",
        "self.kept[0:2].copy_(out)",
        "self.total.add_(out)",
    ):  # cast to what they hold
        assert not said(written, written)
