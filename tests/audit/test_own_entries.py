"""Evaluations that a library's user may call before the training that set Apex up (AMP531)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, program, told

BEFORE = """
import torch
from apex import amp


class Learner:
    def __init__(self, model, data, fp16=True):
        self.model, self.data, self.fp16 = model.cuda(), data, fp16
        self.optimizer = torch.optim.Adam(model.parameters())

    def fit(self):
        self.model, self.optimizer = amp.initialize(self.model, self.optimizer, enabled=self.fp16)
        for x, y in self.data:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()
        self.validate()

    def validate(self):
        with torch.no_grad():
            for x, y in self.data:
                print(self.model(x).argmax(1))
"""
AFTER = """
import torch


class Learner:
    def __init__(self, model, data, fp16=True):
        self.model, self.data, self.fp16 = model.cuda(), data, fp16
        self.optimizer = torch.optim.Adam(model.parameters())

    def fit(self):
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.fp16)
        for x, y in self.data:
            self.optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16, enabled=self.fp16):
                loss = torch.nn.functional.cross_entropy(self.model(x), y)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.validate()

    def validate(self):
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=self.fp16):
            for x, y in self.data:
                print(self.model(x).argmax(1))
"""


def test_an_evaluation_before_the_training_is_told_of() -> None:
    found = doubts(BEFORE, AFTER)
    assert told(found, "AMP531") == [(23, "look")]
    doubt = next(d for d in found if d.code == "AMP531")
    assert "also for who calls validate() on an object whose fit()" in doubt.message
    assert "where self.fp16, also" in doubt.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    def validate(self):", "    def _validate(self):"),  # no user's
        ("    def validate(self):", "    def compute(self):"),
        ("enabled=self.fp16):\n            for x", "enabled=self.scaler.is_enabled()):\n            for x"),
        ("enabled=self.fp16):\n            for x", "enabled=False):\n            for x"),
    ],
)
def test_what_is_no_evaluation_or_asks_the_scaler_is_not(old: str, new: str) -> None:
    if old.startswith("    def"):
        name = new.partition("def ")[2].partition("(")[0]
        texts = [t.replace(old, new).replace("self.validate", f"self.{name}") for t in (BEFORE, AFTER)]
    else:
        texts = [BEFORE, AFTER.replace(old, new)]
    assert "look" not in [verdict for _, verdict in told(doubts(*texts), "AMP531")]


def test_what_sets_up_for_whoever_makes_the_object_is_not() -> None:
    made = "        self.optimizer = torch.optim.Adam(model.parameters())\n"
    texts = [t.replace(made, f"{made}        self.fit()\n") for t in (BEFORE, AFTER)]
    assert "look" not in [verdict for _, verdict in told(doubts(*texts), "AMP531")]


def test_a_program_that_calls_it_says_itself_what_comes_first() -> None:
    run = program("from learner import Learner\n\nlearner = Learner(model, data)\nlearner.fit()\n")
    assert not told(doubts_of({"learner.py": BEFORE, "run.py": run}, {"learner.py": AFTER}), "AMP531")


@pytest.mark.parametrize("path", ["show.ipynb", "tests/test_learner.py"])
def test_a_notebook_or_a_test_that_calls_it_shows_what_users_may_do(path: str) -> None:
    uses = program("from learner import Learner\n\n\ndef test_it():\n    Learner(model, data, False).validate()\n")
    if path.endswith(".ipynb"):
        uses = program("from learner import Learner\n\nLearner(model, data, False).validate()\n")
    found = doubts_of({"learner.py": BEFORE, path: uses}, {"learner.py": AFTER})
    assert told(found, "AMP531") == [(23, "look")]
