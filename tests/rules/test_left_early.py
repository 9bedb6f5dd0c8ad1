"""An object whose constructor left above initialize has a scaler, too, where an evaluation asks it."""

from __future__ import annotations

import textwrap

import pytest
import torch

from tests.rules.helpers import names_of, rewrite

PROGRAM = """
import torch
from apex import amp


class Solver:
    def __init__(self, mode, fp16):
        self.fp16 = fp16
        self.model = torch.nn.Linear(4, 2)
        LEAVES
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if fp16:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def evaluate(self):
        with torch.no_grad():
            return self.model(torch.ones(2, 4)).dtype

    def train(self):
        for _ in range(2):
            loss = self.model(torch.ones(2, 4)).sum()
            self.optimizer.zero_grad()
            if self.fp16:
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            self.optimizer.step()


class Options:
    def __init__(self, mode):
        self.mode = mode


def main(mode, fp16):
    args = Options(mode)
    solver = Solver(MODE, fp16)
    if MODE not in ("test", "infer"):
        solver.train()
    RUN
"""
LEAVES = [
    'if mode == "test":\n            return',
    'if mode in ("test", "infer"):\n            print("nothing to train")\n            return',
    'with torch.no_grad():\n            if mode == "test":\n                return',
]
HERE = "with torch.no_grad():\n        ASSIGN solver.model(torch.ones(2, 4)).dtype"
INSIDE = HERE.replace("\n    ", "\n        ")
RUNS = [
    HERE,
    f'MODE = "val"\n    if MODE != "test":\n        {INSIDE}',
    f'MODE = "test"\n    if MODE == "test":\n        {INSIDE}',
    'MODE = "val"\n    if MODE == "val":\n        ASSIGN solver.evaluate()',
    "ASSIGN solver.evaluate()",
]


def program(leaves: str, run: str, mode: str = "mode") -> str:
    text = PROGRAM.replace("LEAVES", leaves).replace("RUN", run)
    return text.replace("MODE", mode).replace("ASSIGN", "return")


@pytest.mark.parametrize("mode", ["mode", "args.mode"])
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("leaves", LEAVES)
def test_it_is_evaluated_without_casts_and_every_other_with(leaves: str, run: str, mode: str) -> None:
    result = rewrite(program(leaves, run, mode), device="cpu")
    assert not [f for f in result.findings if f.status == "manual" or f.code in ("AMP131", "AMP502", "AMP531")]
    for fp16 in (True, False):
        assert names_of(result.after)["main"]("train", fp16) == (torch.float16 if fp16 else torch.float32)
        assert names_of(result.after)["main"]("test", fp16) == torch.float32


def test_where_nothing_asks_it_nothing_is_made() -> None:
    after = rewrite(
        program(LEAVES[0], "return None")
        .replace("    def evaluate", "    def other")
        .replace("            return self.model(torch.ones(2, 4)).dtype", "            return None"),
        device="cpu",
    ).after
    assert after is not None
    assert after.count("GradScaler(") == 1


def test_what_leaves_below_is_no_reason() -> None:
    text = program("pass", RUNS[-1]).replace(
        "    def evaluate", '        if mode == "test":\n            return\n\n    def evaluate'
    )
    after = rewrite(text, device="cpu").after
    assert after is not None
    assert after.count("GradScaler(") == 1


WRAPPED = """
import torch
from apex import amp


class Model:
    def __init__(self, train):
        self.train = train
        self.net = torch.nn.Linear(4, 2)
        if not self.train:
            return
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.net, self.optimizer = amp.initialize(self.net, self.optimizer, opt_level="O1")

    def forward(self, x):
        self.output = self.net(x)

    def optimize(self, x):
        self.forward(x)
        loss = self.output.float().sum()
        self.optimizer.zero_grad()
        with amp.scale_loss(loss, self.optimizer) as scaled:
            scaled.backward()
        self.optimizer.step()

    def test(self, x):
        with torch.no_grad():
            self.forward(x)
        return self.output.dtype


m = Model(TRAIN)
if m.train:
    m.optimize(torch.ones(1, 4))
dtype = m.test(torch.ones(1, 4))
"""


@pytest.mark.parametrize("train", ["True", "False"])
def test_the_object_of_a_method_is_asked_not_a_variable_of_the_file(train: str) -> None:
    result = rewrite(WRAPPED.replace("TRAIN", "bool(input())"), device="cpu")
    assert "enabled=self.scaler.is_enabled()" in (result.after or "")
    assert not [f for f in result.findings if f.status == "manual"]
    text = (result.after or "").replace("bool(input())", train)
    assert names_of(text)["dtype"] == (torch.float16 if train == "True" else torch.float32)


LATER = """
import torch
from apex import amp


class Learner:
    def __init__(self):
        self.net = torch.nn.Linear(4, 2)
        self.ready = False

    def set_up(self):
        if self.ready:
            return
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.net, self.optimizer = amp.initialize(self.net, self.optimizer, opt_level="O1")
        self.ready = True

    def fit(self):
        self.set_up()
        loss = self.net(torch.ones(1, 4)).float().sum()
        self.optimizer.zero_grad()
        with amp.scale_loss(loss, self.optimizer) as scaled:
            scaled.backward()
        self.optimizer.step()

    def predict(self):
        with torch.no_grad():
            return self.net(torch.ones(1, 4)).dtype


def main(times):
    print(Learner().predict())
    learner = Learner()
    for _ in range(times):
        learner.fit()
    return learner.predict()
"""


@pytest.mark.parametrize(("times", "dtype"), [(0, torch.float32), (1, torch.float16), (2, torch.float16)])
def test_what_is_set_up_once_stays_so_where_it_is_asked_for_again(times: int, dtype: torch.dtype) -> None:
    result = rewrite(LATER, device="cpu")
    assert not [f for f in result.findings if f.status == "manual"]
    assert names_of(result.after)["main"](times) == dtype


BRANCH = '        if fp16:\n            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")\n'


@pytest.mark.parametrize("around", ["for _ in range(1):", "with torch.enable_grad():"])
@pytest.mark.parametrize("leaves", ["pass", LEAVES[0]])
def test_what_stands_around_initialize_is_left_as_well(around: str, leaves: str) -> None:
    inner = "            if mode == 'test':\n                return\n" if leaves == "pass" else ""
    nested = f"        {around}\n{inner}{textwrap.indent(BRANCH, '    ')}"
    text = program(leaves, RUNS[-1])
    assert BRANCH in text
    result = rewrite(text.replace(BRANCH, nested), device="cpu")
    assert not [f for f in result.findings if f.status == "manual" or f.code in ("AMP131", "AMP502", "AMP531")]
    for fp16 in (True, False):
        assert names_of(result.after)["main"]("train", fp16) == (torch.float16 if fp16 else torch.float32)
        assert names_of(result.after)["main"]("test", fp16) == torch.float32


DERIVED = """
class Tuned(Solver):
    def __init__(self, mode, fp16):
        if mode == "test":
            self.fp16 = fp16
            self.model = torch.nn.Linear(4, 2)
            return
        super().__init__(mode, fp16)


def main("""


def test_a_derived_class_may_leave_above_the_constructor_that_it_derives() -> None:
    text = program("pass", RUNS[-1]).replace("def main(", DERIVED.strip()).replace("= Solver(", "= Tuned(")
    result = rewrite(text, device="cpu")
    assert not [f for f in result.findings if f.status == "manual" or f.code in ("AMP131", "AMP502", "AMP531")]
    for fp16 in (True, False):
        assert names_of(result.after)["main"]("train", fp16) == (torch.float16 if fp16 else torch.float32)
        assert names_of(result.after)["main"]("test", fp16) == torch.float32
