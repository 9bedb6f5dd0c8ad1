"""A plain backward into gradients that are scaled (AMP231), in whichever function, of programs with several optimizers."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

BEFORE = """
import torch
from apex import amp

class Trainer:
    def train(self, net, loader):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
        for x in loader:
            self.forward_backward(net, x, optimizer)
            self.regularise(net, x)
            optimizer.step()
            net.zero_grad()
            BESIDE

    def forward_backward(self, net, x, optimizer):
        loss = net(x).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()

    def regularise(self, net, x):
        REGULARISE
"""
AFTER = """
import torch

class Trainer:
    def train(self, net, loader):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            self.forward_backward(net, x, optimizer)
            self.regularise(net, x)
            self.scaler.step(optimizer)
            self.scaler.update()
            net.zero_grad()
            BESIDE

    def forward_backward(self, net, x, optimizer):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x).mean()
        self.scaler.scale(loss).backward()

    def regularise(self, net, x):
        REGULARISE
"""
BESIDE = """pass
            critic, solver = build_critic()
            solver.zero_grad()
            critic(x).sum().backward()
            solver.step()"""


def found(before: str, after: str, beside: str) -> list[str]:
    texts = [t.replace("REGULARISE", r).replace("BESIDE", beside) for t, r in ((BEFORE, before), (AFTER, after))]
    return [v for _, v in told(doubts(*texts), "AMP231")]


@pytest.mark.parametrize("beside", ["pass", BESIDE])
@pytest.mark.parametrize("loss", ["penalty(net).backward()", "loss = penalty(net)\n        loss.backward()"])
def test_a_penalty_without_scale_is_refused(loss: str, beside: str) -> None:
    assert found(loss, loss, beside) == ["refuse"]


@pytest.mark.parametrize("beside", ["pass", BESIDE])
def test_one_that_is_scaled_is_not(beside: str) -> None:
    assert not found("penalty(net).backward()", "self.scaler.scale(penalty(net)).backward()", beside)


def test_nor_one_of_another_model_than_the_optimizers() -> None:
    other = "critic = torch.nn.Linear(4, 1)\n        critic(x).mean().backward()"
    assert not found(other, other, BESIDE)


CLASSES = """
import torch
from project import build, loader, criterion

class Solver:
    def __init__(self, params):
        self.opt = torch.optim.SGD(params, lr=0.1)

    def step(self):
        STEP

class Engine:
    def __init__(self, args, model, solver):
        self.args, self.model, self.solver = args, model, solver

    def end(self):
        BACKWARD
        self.solver.step()

    def train(self):
        for x, y in loader:
            self.loss = criterion(self.model(x), y)
            self.end()

class Center(Engine):
    def end(self):
        OTHER
        self.solver.step()

def run(args):
    global scaler
    model = build()
    solver = Solver(model.parameters())
    SETUP
    kind = Center if args.center else Engine
    kind(args, model, solver).train()

run(parse())
"""
INITIALIZE = 'model, solver.opt = amp.initialize(model, solver.opt, opt_level="O1")'
SCALE_LOSS = "with amp.scale_loss(self.loss, self.solver.opt) as scaled_loss:\n            scaled_loss.backward()"


@pytest.mark.parametrize(
    ("other", "refused"), [("self.loss.backward()", True), ("scaler.scale(self.loss).backward()", False)]
)
def test_a_relative_of_what_scales_steps_through_the_scaler_without_a_scaled_backward(
    other: str, refused: bool
) -> None:
    was = {"STEP": "self.opt.step()", "BACKWARD": SCALE_LOSS, "OTHER": "self.loss.backward()", "SETUP": INITIALIZE}
    now = {
        "STEP": "scaler.step(self.opt)\n        scaler.update()",
        "BACKWARD": "scaler.scale(self.loss).backward()",
        "OTHER": other,
        "SETUP": 'scaler = torch.amp.GradScaler("cuda")',
    }
    before, after = CLASSES.replace("import torch", "import torch\nfrom apex import amp", 1), CLASSES
    for name, text in was.items():
        before = before.replace(name, text)
    for name, text in now.items():
        after = after.replace(name, text)
    found = [d for d in doubts(before, after) if d.code == "AMP231"]
    assert [d.verdict for d in found] == (["refuse"] if refused else [])
