"""Networks that no set-up was given and that are known by their class: run under any name, by any method."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

BEFORE = """
import torch
from apex import amp


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.names = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3), ["a", "b"]

    def embed(self, x):
        return self.body(x)

    def add(self, x):
        return self.embed(x) + x

    def label(self, index):
        return self.names[index]

    def forward(self, x):
        return self.head(self.embed(x))


def soft(other, x):
    return RUN


def main(loader, criterion):
    model = Net().cuda()
    other = MADE
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")
    for x, y in loader:
        part = soft(other, x)
        loss = criterion(model(x), y) + part.sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main(batches, torch.nn.functional.cross_entropy)
"""
CHANGES = (
    ("from apex import amp\n", ""),
    (
        '    model, optimizer = amp.initialize(model, optimizer, opt_level="LEVEL")\n',
        '    scaler = torch.amp.GradScaler("cuda")\n',
    ),
    (
        "        loss = criterion(model(x), y) + part.sum()\n",
        '        with torch.autocast("cuda", dtype=torch.float16):\n'
        "            loss = criterion(model(x), y) + part.sum()\n",
    ),
    (
        "        with amp.scale_loss(loss, optimizer) as scaled_loss:\n            scaled_loss.backward()\n"
        "        optimizer.step()\n",
        "        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()\n",
    ),
)


def lost(run: str, made: str = "Net().cuda()", level: str = "O1") -> list[tuple[int, str]]:
    before = BEFORE.replace("RUN", run).replace("MADE", made)
    if "Teacher" in made:
        before = before.replace("\ndef soft(other, x):", HEADED)
    after = before
    for old, new in CHANGES:
        assert old in after
        after = after.replace(old, new)
    return told(doubts(before.replace("LEVEL", level), after), "AMP531")


@pytest.mark.parametrize("run", ["other(x)", "other.forward(x)", "other.embed(x)", "other.add(x)"])
def test_what_runs_parts_of_it_in_float32_now_is_told(run: str) -> None:
    assert lost(run) == [(BEFORE.splitlines().index("    return RUN"), "review")]


def test_what_runs_nothing_of_it_is_not() -> None:
    assert not lost("torch.ones(3) * len(other.label(0))")


HEADED = """
from transformers import BertForMaskedLM


class Teacher(BertForMaskedLM):
    def predict(self, ids):
        return self.bert(ids)[0]

    def forward(self, ids):
        return self.cls(self.predict(ids))


def soft(other, x):"""


@pytest.mark.parametrize(
    ("run", "made"),
    [
        ("other(x)", 'torch.load("teacher.pt").cuda().eval()'),
        ("[other[k].eval() for k in other] and other['t'](x)", '{"t": torch.load("teacher.pt")}'),
        ("other.predict(x)", 'Teacher.from_pretrained("teacher")'),
    ],
    ids=["a chain of its methods", "one of several", "derived from a library's"],
)
def test_a_network_whose_making_is_not_seen_is_told(run: str, made: str) -> None:
    assert [verdict for _, verdict in lost(run, made)] == ["review"]


@pytest.mark.parametrize(
    ("run", "made"),
    [
        ("other(x)", 'load("labels").cuda()'),
        ("other['t'](x)", '{"t": load("labels")}'),
        ("other.head_of(x)", 'Teacher.from_pretrained("teacher")'),
    ],
)
def test_what_nothing_treats_as_a_network_is_not(run: str, made: str) -> None:
    assert not lost(run, made)


@pytest.mark.parametrize("made", ["set()", "torch.zeros(4)", "[]"])
def test_what_is_no_network_and_has_a_method_of_that_name_is_not(made: str) -> None:
    assert not lost("other.add(x)", made)


def test_o2_left_other_networks_in_float32() -> None:
    assert not lost("other.embed(x)", level="O2")
