"""A scaler that steps what holds the optimizer, where Apex was given the optimizer itself: AMP231."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts

SCHEDULE = """
class Schedule:
    def __init__(self, inner):
        self.inner = inner
        self.lr = 0.1
        MORE

    def step(self):
        self.inner.step()

    def zero_grad(self):
        self.inner.zero_grad()

"""
BEFORE = """
import torch
from apex import amp
CLASS
class Trainer:
    def __init__(self, model, schedule):
        self.model, self.schedule = model, schedule
        self.model, INNER = amp.initialize(self.model, GIVEN, opt_level="O1")

    def train(self, loader):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            with amp.scale_loss(loss, GIVEN) as scaled_loss:
                scaled_loss.backward()
            STEPPED.step()
            self.schedule.zero_grad()

MAKE
"""
AFTER = """
import torch
CLASS
class Trainer:
    def __init__(self, model, schedule):
        self.model, self.schedule = model, schedule
        self.scaler = torch.amp.GradScaler("cuda")

    def train(self, loader):
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(self.model(x), y)
            self.scaler.scale(loss).backward()
            self.scaler.step(STEPPED)
            self.scaler.update()
            self.schedule.zero_grad()

MAKE
"""
MAKE = "net = torch.nn.Linear(4, 2).cuda()\nTrainer(net, Schedule(torch.optim.SGD(net.parameters(), lr=0.1))).train(loader)"


def told(
    inner: str, stepped: str, cls: str = SCHEDULE, make: str = MAKE, more: str = "pass", given: str = "INNER"
) -> bool:
    texts = []
    for text in (BEFORE, AFTER):
        text = text.replace("CLASS", cls).replace("MORE", more).replace("MAKE", make).replace("GIVEN", given)
        texts.append(text.replace("INNER", inner).replace("STEPPED", stepped))
    found = doubts(*texts)
    return any(d.verdict == "refuse" and "is not what Apex was given" in d.message for d in found)


@pytest.mark.parametrize("inner", ["self.schedule.inner", 'self.schedule["inner"]'])
def test_an_object_that_holds_the_optimizer(inner: str) -> None:
    assert told(inner, "self.schedule", "", "")
    if "." in inner[5:]:
        assert told(inner, "self.schedule")


def test_the_optimizer_in_a_list() -> None:
    assert told("self.schedule.inner", "self.schedule", given="[self.schedule.inner]")
    assert not told("self.schedule", "self.schedule", given="[self.schedule]")


def test_the_optimizer_itself() -> None:
    assert not told("self.schedule.inner", "self.schedule.inner")
    assert not told("self.schedule", "self.schedule")
    assert not told("self.schedule", "self.schedule", "", "")


@pytest.mark.parametrize("more", ["self.param_groups = inner.param_groups", "self.lr = 0.2"])
def test_an_object_that_has_groups_itself(more: str) -> None:
    assert told("self.schedule.inner", "self.schedule", more=more) == ("param_groups" not in more)
