"""Models that go to code out of sight, or come from it: AMP232, AMP531, AMP535."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of

PROGRAM = """
from functools import partial
from contextlib import nullcontext
import numpy as np
import torch
HEAD
from robust import attack, make_net, make_head
from torch.nn.utils import parameters_to_vector
from torch.nn.utils.parametrize import is_parametrized

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
    "call",
    [
        "x = attack(x)",
        "x = own(model, x)",
        "v = parameters_to_vector(model.parameters())",
        "v = is_parametrized(model)",
        "v = partial(model, x)",
        "x = model(x)",
    ],
)
def test_what_is_in_sight_or_is_given_no_model(call: str) -> None:
    assert not found("AMP232", call)


@pytest.mark.parametrize("off", ["torch.no_grad()", "torch.set_grad_enabled(False)", "torch.inference_mode()"])
def test_no_backward_runs_without_gradients(off: str) -> None:
    assert not found("AMP232", f"with {off}:\n                x = attack(model, x)")


@pytest.mark.parametrize(
    ("chosen", "asked", "told"),
    [
        ("torch.no_grad() if testing else nullcontext()", "if testing", 0),
        ("torch.no_grad() if testing else nullcontext()", "if testing and deep", 0),
        ("torch.no_grad() if testing else nullcontext()", "if deep", 1),
        ("torch.no_grad() if testing else nullcontext()", "if not testing", 1),
        ("nullcontext() if training else torch.no_grad()", "if not training", 0),
        ("nullcontext() if training else torch.no_grad()", "if training", 1),
    ],
)
def test_nor_where_a_test_says_that_gradients_are_off(chosen: str, asked: str, told: int) -> None:
    inside = f"with {chosen}:\n                {asked}:\n                    x = attack(model, x)"
    assert len(found("AMP232", inside)) == told


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


LOSSES = """
import torch
from robust import attack

def loss_of(model, x):
    REGION:
        x = attack(model, x)
        return model(x).sum()
"""
STEPS = """
import torch
HEAD
from losses import loss_of

model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
INITIALIZE
for x in load():
    loss = loss_of(model, x)
    STEP
"""
BACKWARD = "with amp.scale_loss(loss, optimizer) as s:\n        s.backward()\n    optimizer.step()"
SCALED = "scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()"


@pytest.mark.parametrize(
    ("dtype", "scaler", "step", "told"),
    [
        ("float16", "scaler = torch.amp.GradScaler()", SCALED, ["losses.py"]),
        ("bfloat16", "", "loss.backward()\n    optimizer.step()", []),  # nothing divides by a loss scale
    ],
)
def test_the_region_in_another_file_than_the_scaler(dtype: str, scaler: str, step: str, told: list[str]) -> None:
    steps = STEPS.replace("HEAD", "from apex import amp").replace("STEP", BACKWARD)
    before = steps.replace("INITIALIZE", 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")')
    after = STEPS.replace("HEAD\n", "").replace("INITIALIZE", scaler).replace("STEP", step)
    region = f'with torch.autocast("cuda", dtype=torch.{dtype})'
    found = doubts_of(
        {"train.py": before, "losses.py": LOSSES.replace("REGION", "if True")},
        {"train.py": after, "losses.py": LOSSES.replace("REGION", region)},
    )
    assert [d.path for d in found if d.code == "AMP232" and "out of sight" in d.message] == told


AVERAGED = """
import torch
HEAD
from robust import Trainer

def main(loader):
    model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average = torch.optim.swa_utils.AveragedModel(model)
    INITIALIZE
    Trainer(model, average, optimizer).fit(loader)
    finish(loader, average)

def finish(loader, average):
    torch.optim.swa_utils.update_bn(loader, average)

if __name__ == "__main__":
    main(load())
"""


def lost(level: str, after: str = AVERAGED) -> int:
    before = AVERAGED.replace("HEAD", "from apex import amp")
    setup = f'model, optimizer = amp.initialize(model, optimizer, opt_level="{level}")'
    after = after.replace("HEAD\n", "").replace("INITIALIZE", "scaler = torch.amp.GradScaler()")
    found = doubts(before.replace("INITIALIZE", setup), after)
    return len(
        [d for d in found if d.code == "AMP531" and "update_bn is given average and is out of sight" in d.message]
    )


def test_a_function_of_torch_that_runs_the_model_it_is_given_second() -> None:
    assert lost("O1") == 1
    assert lost("O2") == 0  # a copy that it did not reach


def test_a_way_that_only_the_program_after_has_lost_nothing() -> None:
    beside = "def check(loader, average):\n    finish(loader, average)\n\nif __name__"
    assert lost("O1", AVERAGED.replace("if __name__", beside)) == 1
    elsewhere = AVERAGED.replace("    finish(loader, average)\n\n", "    pass\n\n")
    assert lost("O1", elsewhere.replace("if __name__", beside)) == 0


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
