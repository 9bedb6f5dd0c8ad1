"""What an object gives by a property, an index, a loop or a call of it is followed as what its methods give: NumPy got half there."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts
from tests.rules.helpers import names_of, rewrite

PROGRAM = """
import torch
from apex import amp


class Meter:
    def __init__(self):
        self.seen = []
        self.now = None
        self.count = 0

    def add(self, value):
        self.seen.append(value)
        self.now = value
        self.count += value.size(0)

    GIVES


def main():
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    meter = Meter()
    for _ in range(2):
        output = model(torch.ones(2, 4))
        loss = output.float().sum()
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        meter.add(output.detach())
    return READ
"""
CASES = {
    "property": ("@property\n    def last(self):\n        return self.seen[-1]", "meter.last.cpu().numpy().dtype.name"),
    "cached": (
        "@__import__('functools').cached_property\n    def last(self):\n        return self.now",
        "meter.last.cpu().numpy().dtype.name",
    ),
    "pair": (
        "@property\n    def both(self):\n        return self.now, self.seen[0]",
        "max(v.cpu().numpy().dtype.name for v in meter.both)",
    ),
    "index": ("def __getitem__(self, i):\n        return self.seen[i]", "meter[0].cpu().numpy().dtype.name"),
    "loop": (
        "def __iter__(self):\n        return iter(self.seen)",
        "max(v.cpu().numpy().dtype.name for v in meter)",
    ),
    "generator": (
        "def __iter__(self):\n        for value in self.seen:\n            yield value",
        "max([v.cpu().numpy().dtype.name for v in meter])",
    ),
    "each": (
        "def each(self):\n        yield from self.seen",
        "max(v.cpu().numpy().dtype.name for v in meter.each())",
    ),
    "call": ("def __call__(self):\n        return self.now", "meter().cpu().numpy().dtype.name"),
    "inside": (
        "@property\n    def last(self):\n        return self.now\n\n"
        "    def name(self):\n        return self.last.cpu().numpy().dtype.name",
        "meter.name()",
    ),
}


def program(gives: str, read: str) -> str:
    return PROGRAM.replace("GIVES", gives).replace("READ", read)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_numpy_gets_float32(case: tuple[str, str]) -> None:
    result = rewrite(program(*case), device="cpu")
    assert "AMP504" in {f.code for f in result.findings}
    assert names_of(result.after)["main"]() == "float32"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_audit_tells_of_it(case: tuple[str, str]) -> None:
    before = program(*case)
    after = (rewrite(before).after or "").replace(".float().cpu()", ".cpu()")
    assert "AMP535" in {d.code for d in doubts(before, after)}


@pytest.mark.parametrize(
    ("gives", "read"),
    [
        ("@property\n    def total(self):\n        return self.count", "meter.total"),
        ("def __len__(self):\n        return self.count", "len(meter)"),
        ("def __iter__(self):\n        yield torch.ones(2)", "[v.cpu().numpy() for v in meter]"),
        (
            "@property\n    def mean(self):\n        return torch.cat(self.seen).float().mean()",
            "meter.mean.cpu().numpy()",
        ),
        ("def __getitem__(self, i):\n        return self.seen[i].argmax(1)", "meter[0].cpu().numpy()"),
    ],
)
def test_what_is_not_half_is_none_of_it(gives: str, read: str) -> None:
    result = rewrite(program(gives, read))
    assert result.after is not None
    assert not {f.code for f in result.findings} & {"AMP504", "AMP535"}
