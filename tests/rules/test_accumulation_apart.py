"""Backward and step in functions of their own: how one follows the other stands in either."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

APART = """
import torch
from apex import amp


class Trainer:
    def __init__(self, model, every):
        self.turn, self.every = 0, every
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.model, self.optimizer = amp.initialize(model, self.optimizer, opt_level="O1")

    def backward(self, loss):
        {scale}

    def step(self, update=True):
        {step}
        self.turn += 1

    def train(self, loss):
        self.backward(loss)
        self.step()


trainer = Trainer(torch.nn.Linear(4, 2).cuda(), 4)
for _ in range(8):
    trainer.train(trainer.model(torch.randn(8, 4).cuda()).pow(2).mean())
"""
SCALE = "with amp.scale_loss(loss, self.optimizer) as scaled:\n            scaled.backward()"
SCALE_EACH = "for part in loss:\n            with amp.scale_loss(part, self.optimizer) as scaled:\n                scaled.backward()"
STEPPED = "self.optimizer.step()"
KEPT_BACK = "if (self.turn + 1) % self.every == 0:\n            self.optimizer.step()"
LEFT = "if (self.turn + 1) % 4:\n            self.turn += 1\n            return\n        self.optimizer.step()"


@pytest.mark.parametrize(
    ("scale", "step", "said"),
    [
        (SCALE, KEPT_BACK, True),
        (SCALE, LEFT, True),
        (SCALE_EACH, STEPPED, True),
        (SCALE, STEPPED, False),
        (SCALE, KEPT_BACK.replace("self.every", "1"), False),
        (SCALE, "if update:\n            self.optimizer.step()", False),
        (SCALE, "if torch.isfinite(self.turn):\n            self.optimizer.step()", False),
    ],
)
def test_backward_and_step_in_functions_that_a_third_one_calls(scale: str, step: str, said: bool) -> None:
    result = rewrite(APART.format(scale=scale, step=step))
    assert result.after is not None
    told = found(result, "AMP207")
    assert [f.message[:26] for f in told] == ["several backwards per step"] * said


def test_a_boundary_two_calls_below_is_found_too() -> None:
    source = APART.format(scale=SCALE, step=KEPT_BACK).replace(
        "        self.step()\n", "        self.finish()\n\n    def finish(self):\n        self.step()\n"
    )
    assert len(found(rewrite(source), "AMP207")) == 1


ANEW = """
import torch
from apex import amp
from project import criterion, loader

model = torch.nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


def train_on(x, y, update=True):
    {cleared}
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    if update:
        optimizer.step()


for i, (x, y) in enumerate(loader):
    train_on(x, y, update=i % 2 == 0)
"""


@pytest.mark.parametrize(
    ("cleared", "anew"),
    [
        ("optimizer.zero_grad()", True),
        ("for g in optimizer.param_groups:\n        for p in g['params']:\n            p.grad = None", True),
        ("if update:\n        optimizer.zero_grad()", False),
        ("other.zero_grad()", False),
    ],
)
def test_of_gradients_that_each_backward_begins_anew_a_step_takes_those_of_one(cleared: str, anew: bool) -> None:
    result = rewrite(ANEW.format(cleared=cleared))
    (told,) = [f.message for f in result.findings if f.code == "AMP207"]
    assert ("several backwards per step" in told) is not anew
    assert ("cleared before each backward" in told) is anew


TWO = """
import torch
from apex import amp
from project import build, criterion, loader

netG, netD = build().cuda(), build().cuda()
optG, optD = torch.optim.SGD(netG.parameters(), lr=0.1), torch.optim.SGD(netD.parameters(), lr=0.1)
[netG, netD], [optG, optD] = amp.initialize([netG, netD], [optG, optD], opt_level="O1")


def train(args):
    for x, y in loader:
        optD.zero_grad()
        for i in range(args.every):
            with amp.scale_loss(criterion(netD(x), y), optD) as scaled_loss:
                scaled_loss.backward()
        optD.step()
        BETWEEN
        optG.zero_grad()
        for i in range(args.every):
            with amp.scale_loss(criterion(netG(x), y), optG) as scaled_loss:
                scaled_loss.backward()
        optG.step()
"""
PER_UPDATE = "(growth_interval=2000 // N for N of them per update, of all the optimizers, keeps Apex's pace)"


@pytest.mark.parametrize(
    ("between", "pace"),
    [
        ("", PER_UPDATE),
        ("\n    for x, y in loader:", "(growth_interval=2000 // N for N of them keeps Apex's pace)"),
    ],
)
def test_the_backwards_of_all_the_optimizers_come_before_one_update(between: str, pace: str) -> None:
    told = [f.message for f in found(rewrite(TWO.replace("BETWEEN", between)), "AMP207")]
    assert len(told) == 2
    assert all(pace in m for m in told)
    shared = ", and one update after the steps of several optimizers: the scale grows per update now" in told[0]
    assert shared is (pace == PER_UPDATE)


RUNS = """
import torch
from apex import amp


def run(fp16):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for _ in range(2):
        loss = model(torch.ones(1, 4)).float().sum()
        optimizer.zero_grad()
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()


run(False)
run(True)
run(True)
"""


def test_runs_that_each_step_in_turn_are_no_backwards_before_one_step() -> None:
    result = rewrite(RUNS)
    assert result.after is not None
    assert "AMP207" not in {f.code for f in result.findings}
