"""What a network runs of itself outside of its forward ran in half under Apex: in an evaluation that is a method of its own, in one
that trains it, in functions that it hands itself to."""

from __future__ import annotations

import pytest
import torch

from tests.rules.helpers import names_of, rewrite

PROGRAM = """
import torch
from functools import partial
from torch import nn
from apex import amp

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        return self.last(x)

    def sample(self, x):
        return self.last(x) * 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.part = Part()
        self.seen = []

    def forward(self, x):
        out = self.part(self.first(x))
        self.seen.append(out.dtype)
        return out

    def validate(self, val):
        with torch.no_grad():
            for x in val:
                self(x)

    def generate(self, x):
        with torch.no_grad():
            out = self.part(self.first(x))
        self.seen.append(out.dtype)
        return out

    def draw(self):
        out = self.part(torch.ones(2, 8))
        self.seen.append(out.dtype)
        return out

    def shows(self, val):
        for x in val:
            print(self.generate(x).shape)

    def keep(self, value):
        self.seen.append(value.dtype)

    @property
    def width(self):
        return self.first.out_features

    def fit(self, loader, val, optimizer):
        for x in loader:
            optimizer.zero_grad()
            loss = self(x).float().sum()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
        self.seen = []
        FINALLY

def score(model, val):
    with torch.no_grad():
        for x in val:
            model(x)

def every(run, val):
    return [run(x) for x in val]

def main(loader, val, name="generate"):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = amp.initialize(net, optimizer, opt_level="LEVEL")
    net.fit(loader, val, optimizer)
    IN_SCRIPT
    return net
"""
IN_TRAINING = [
    "self.validate(val)",
    "self.shows(val)",
    "score(self, val)",
    "Net.validate(self, val)",
    "self.draw()",
    *(
        f"for x in val:\n            {call}"
        for call in (
            "self(x)",
            "self.forward(x)",
            "self.__call__(x)",
            "torch.nn.DataParallel(self)(x)",
            "self.eval()(x)",
            "self.generate(x)",
            'getattr(self, "generate")(x)',
            "self.keep(self.part(x.new_ones(2, 8)))",
            "self.keep(self.part.sample(x.new_ones(2, 8)))",
            "(lambda x: self(x))(x)",
        )
    ),
    "run = self.generate\n        for x in val:\n            run(x)",
    "def show():\n            for x in val:\n                self.generate(x)\n        show()",
]
IN_SCRIPT = [
    "net.validate(val)",
    "every(net.generate, val)",
    *(
        f"for x in val:\n        {call}"
        for call in (
            "net.generate(x)",
            'getattr(net, "generate")(x)',
            "getattr(net, name)(x)",
            "partial(net.generate)(x)",
        )
    ),
    "run = net.generate\n    for x in val:\n        run(x)",
    "for run in (net.generate, net.forward):\n        for x in val:\n            run(x)",
]


def seen(level: str, finally_: str = "pass", script: str = "pass") -> set[torch.dtype]:
    """The dtypes of what a migrated program computes when it no longer trains."""
    text = PROGRAM.replace("LEVEL", level).replace("FINALLY", finally_).replace("IN_SCRIPT", script)
    result = rewrite(text, device="cpu")
    assert not [f for f in result.findings if f.status == "manual"]
    net = names_of(result.after)["main"]([torch.ones(2, 4)], [torch.ones(2, 4)])
    return set(net.seen)


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("runs", IN_TRAINING)
def test_in_a_method_that_trains_it(runs: str, level: str) -> None:
    assert seen(level, finally_=runs) == {torch.float16}


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("runs", IN_SCRIPT)
def test_in_a_script(runs: str, level: str) -> None:
    assert seen(level, script=runs) == {torch.float16}


@pytest.mark.parametrize(("level", "dtype"), [("O1", torch.float16), ("O2", torch.float32)])
def test_in_an_object_of_the_class_that_no_set_up_was_given(level: str, dtype: torch.dtype) -> None:
    """O2 left its weights in float32; what O1 patched ran that in half, too."""
    assert seen(level, script="other = Net()\n    other.seen = net.seen\n    other.validate(val)") == {dtype}


def test_no_region_stands_around_what_trains_by_another_method() -> None:
    text = PROGRAM.replace("LEVEL", "O1").replace("FINALLY", "pass").replace("IN_SCRIPT", "pass")
    text = text.replace(
        "self.seen = []\n        pass",
        "self.seen = []\n\n    def run(self, loader, val, optimizer):\n        self.fit(loader, val, optimizer)\n        self.draw()",
    )
    after = rewrite(text.replace("net.fit(", "net.run(")).after or ""
    assert "\n    net.run(" in after
    assert after.count("with torch.autocast") == 2


def test_before_the_set_up() -> None:
    """Which is told of by nothing: no region stands around it, as no patch did."""
    text = PROGRAM.replace("LEVEL", "O1").replace("FINALLY", "pass").replace("IN_SCRIPT", "pass")
    text = text.replace("    net, optimizer = amp", "    net.validate(val)\n    net, optimizer = amp")
    found = rewrite(text).findings
    assert [f.code for f in found if f.code in ("AMP501", "AMP531")] == ["AMP501"]


OLDER = """
import torch
from torch import nn
IMPORT

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 2)])
        self.seen = []

    def forward(self, x):
        out = self.parts[0](x)
        self.seen.append(out.dtype)
        return out

    def generate(self, x, half):
        if half:
            x = x.half()
        out = self.parts[0](x)
        self.seen.append(out.dtype)

    def validate(self, x):
        self(x)

    def fit(self, x, half, optimizer):
        SET_UP
        loss = self(x.half() if HALF else x).float().sum()
        BACKWARD
        optimizer.step()
        self.seen = []
        FINALLY

def main(half):
    net = Net()
    if HALF:
        net = net.half()
    net.fit(torch.ones(2, 4), half, torch.optim.SGD(net.parameters(), lr=0.1))
    return net
"""
FP16 = (
    ("IMPORT", "from apex.fp16_utils import FP16_Optimizer"),
    (
        "SET_UP",
        "if half:\n            optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)",
    ),
    ("BACKWARD", "if half:\n            optimizer.backward(loss)\n        else:\n            loss.backward()"),
    ("HALF", "half"),
)


@pytest.mark.parametrize(
    "runs",
    [
        "self.generate(x, half)",
        "print(self.generate(x, half))",
        "for _ in range(1):\n            print(self.generate(x, half))",
    ],
)
def test_inputs_that_the_program_makes_half_do_not_meet_float32_weights_unsaid(runs: str) -> None:
    text = OLDER.replace("FINALLY", runs)
    for name, code in FP16:
        text = text.replace(name, code)
    result = rewrite(text, device="cpu")
    if not [f for f in result.findings if f.code == "AMP531" and "it raises" in f.message]:
        assert set(names_of(result.after)["main"](True).seen) == {torch.float16}
