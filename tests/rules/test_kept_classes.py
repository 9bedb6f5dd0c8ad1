"""A loss of the program's own that is made of a class which is kept as a value, by whomever: its binary_cross_entropy is computed
without autocast, on float32."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.audit.helpers import doubts
from tests.rules.helpers import names_of, rewrite

PROGRAM = """
import enum
import torch
import torch.nn.functional as F
from functools import partial
from torch import nn
from apex import amp
from framework import Model

KINDS = {}

def register(kind):
    KINDS[kind.__name__] = kind
    return kind

class Base(nn.Module):
    below = {}

    def __init_subclass__(cls, **more):
        super().__init_subclass__(**more)
        Base.below[cls.__name__] = cls

@register
class Soft(Base):
    def __init__(self, beta=0.5):
        super().__init__()
        self.beta = beta

    def forward(self, output, target):
        return F.binary_cross_entropy(torch.sigmoid(output), target) * self.beta

@register
class Plain(Base):
    def forward(self, output, target):
        return F.binary_cross_entropy_with_logits(output, target)

def soft(output, target, beta=1):
    return F.binary_cross_entropy(torch.sigmoid(output), target) * beta

def soft_loss():
    return Soft(0.1)

class Options:
    loss = Soft

class Task(Model):
    BODY

    def __init__(self, name, options=Options):
        super().__init__(name)
        INIT
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O2")

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        output = self.model(x)
        loss = CALL
        with amp.scale_loss(loss, self.optimizer) as scaled:
            scaled.backward()
        self.optimizer.step()
    MORE

def main(x, y):
    Task("soft").train_step(x, y)
"""
BOTH = '{"soft": Soft, "plain": Plain}'
BY_FRAMEWORK = [
    f"loss = {BOTH}",
    f"loss: dict = {BOTH}",
    "loss = Soft",
    "loss = dict(soft=Soft, plain=Plain)",
    'loss = {**{"plain": Plain}, "soft": Soft}',
    'loss = {"plain": Plain} | {"soft": Soft}',
    'loss = {"plain": Plain}\n    loss.update(soft=Soft)',
    'loss = {"soft": partial(Soft, beta=0.1)}',
    "loss = KINDS",
]
IN_SIGHT = [
    (f"kinds = {BOTH}", "self.loss = self.kinds[name]()"),
    (f"kinds = {BOTH}", "self.loss = Task.kinds[name]()"),
    (f"kinds = {BOTH}", "self.loss = type(self).kinds[name]()"),
    (f"kinds = {BOTH}", "self.loss = self.__class__.kinds[name]()"),
    (f"loss = {BOTH}\n    own = True", "self.loss = self.loss[name]()"),
    (f'kinds = {{"losses": {BOTH}}}', 'self.loss = self.kinds["losses"][name]()'),
    ('kinds = {"soft": (Soft, 0.1)}', "kind, beta = self.kinds[name]\n        self.loss = kind(beta)"),
    ("kind = Soft", "self.loss = self.kind()"),
    ("", f"self.kinds = {BOTH}\n        self.loss = self.kinds[name]()"),
    ("", f"self.kind = {BOTH}[name]\n        self.loss = self.kind()"),
    ("", "make = partial(Soft, beta=0.1)\n        self.loss = make()"),
    ("", "kind = Soft if name else Plain\n        self.loss = kind()"),
    ("", 'self.loss = KINDS["Soft"]()'),
    ("", 'self.loss = Base.below["Soft"]()'),
    ("", 'self.loss = globals()["Soft"]()'),
    ("", "self.loss = options.loss()"),
    ("", 'self.loss = {"soft": lambda beta: Soft(beta)}[name](0.1)'),
    ("", 'self.loss = {"soft": soft_loss}[name]()'),
    ("", "self.loss = partial(soft, beta=2)"),
    ("", 'self.add_module("loss", Soft())'),
]
CALLS = [
    ("self.loss(output=output, target=y)", ""),
    ("self.loss.forward(output, y)", ""),
    ("self.compute(output, y)", "\n    def compute(self, output, y):\n        return self.loss(output, y)"),
    ("compute(self, output, y)", "\ndef compute(task, output, y):\n    return task.loss(output, y)"),
    ("self.chosen()(output, y)", "\n    def chosen(self):\n        return self.loss"),
]


class Model:
    """A framework that makes objects of the classes which those derived from it keep."""

    def __init__(self, name: str) -> None:
        kept = type(self).__dict__.get("loss") if not hasattr(self, "own") else None
        if isinstance(kept, dict):
            kept = next(kind for key, kind in kept.items() if key.lower() == name)
        if kept is not None:
            self.loss = kept()
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def add_module(self, name: str, module: torch.nn.Module) -> None:
        setattr(self, name, module)


def program(body: str, init: str = "pass", call: str = "self.loss(output, y)", more: str = "") -> str:
    text = PROGRAM.replace("BODY", body or "pass").replace("INIT", init).replace("CALL", call)
    return text.replace("    MORE", more)


def migrated(text: str) -> str:
    result = rewrite(text, device="cpu")
    assert not [f for f in result.findings if f.status == "manual" or f.code == "AMP533"]
    return result.after or ""


def in_half(text: str) -> list[bool]:
    """Of each binary_cross_entropy that a program computes: whether a region was around it, or it was given half."""
    computed: list[bool] = []
    kept = torch.nn.functional.binary_cross_entropy

    def function(output: torch.Tensor, target: torch.Tensor, **more: Any) -> torch.Tensor:
        computed.append(torch.is_autocast_enabled("cpu") or output.dtype != torch.float32)
        return kept(output, target, **more)

    framework = ModuleType("framework")
    framework.__dict__["Model"] = Model
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "framework", framework)
        patch.setattr(torch.nn.functional, "binary_cross_entropy", function)
        names_of(text)["main"](torch.randn(8, 4), torch.rand(8, 2))
    return computed


@pytest.mark.parametrize("body", BY_FRAMEWORK)
def test_classes_that_a_framework_makes_objects_of(body: str) -> None:
    assert in_half(migrated(program(body))) == [False]


@pytest.mark.parametrize(("body", "init"), IN_SIGHT)
def test_classes_that_the_class_itself_makes_objects_of(body: str, init: str) -> None:
    assert in_half(migrated(program(body, init))) == [False]


@pytest.mark.parametrize(("call", "more"), CALLS)
def test_however_it_is_called(call: str, more: str) -> None:
    assert in_half(migrated(program(f"loss = {BOTH}", call=call, more=more))) == [False]


@pytest.mark.parametrize("body", ['loss = {"soft": nn.BCELoss, "plain": nn.CrossEntropyLoss}', "loss = nn.BCELoss"])
def test_a_class_of_torchs_is_run_on_float32_inputs_and_the_targets_that_it_had(body: str) -> None:
    text = migrated(program(body, call="self.loss(torch.sigmoid(output), y)"))
    assert "loss = self.loss(torch.sigmoid(output.float()), y)\n" in text
    assert in_half(text) == [False]


def test_it_is_told_where_no_island_stands() -> None:
    before = program(f"loss = {BOTH}")
    after = migrated(before).replace('torch.autocast("cpu", enabled=False)', "torch.no_grad()")
    after = after.replace('torch.autocast("cpu"', 'torch.autocast("cuda"')
    assert "torch.no_grad()" in after
    assert "AMP533" in [d.code for d in doubts(before, after)]


def test_what_makes_an_object_runs_no_loss() -> None:
    """`self.kind(0.1)` in sight of its class: a constructor, in no region and in one."""
    text = program("kind = Soft", "self.made = self.kind(0.1)", call="output.mean() * self.kind(0.1).beta")
    text = text.replace("class Task(Model)", "class Task").replace("super().__init__(name)", "self.setup()")
    text += "\n".join(("", "class Setup(Task):", "    def setup(self):", "        self.model = nn.Linear(4, 2)", ""))
    assert "AMP505" not in [f.code for f in rewrite(text).findings]
