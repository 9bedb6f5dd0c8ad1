"""Functions that hand on all that they are given, and that nothing in sight calls: they owe nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files, texts_of
from tests.rules.programs import found

RUNNER = """
import torch
from apex import amp


class Runner:
    def __init__(self, model, optimizer, steps):
        self.model = model
        self.optimizer = optimizer
        self.steps = steps

    def train(self):
        for _ in range(self.steps):
            loss = self.model(torch.ones(1, 2)).sum()
            with amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
            self.optimizer.step()
        return self.steps
"""
MASKED = """
import torch
from torch import nn

from runner import Runner


class Masker(nn.Module):
    def __init__(self):
        super().__init__()


class Masked(Runner):
    def __init__(self, *args, **kwargs):
        self.mask = kwargs.pop("mask", True)
        CALL
"""
MAIN = """
import json

import torch
from apex import amp
from runner import Runner

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
print(json.dumps(Runner(model, optimizer, 2).train()))
"""
ALL = "super().__init__(*args, **kwargs)"
# What is not in sight, of what uses the class.
OTHERS = """
import json

import torch
from masked import Masked

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
print(json.dumps(Masked(model, optimizer, steps=3, scaler=scaler).train()))
"""


def test_what_hands_everything_on_hands_the_scaler_on(tmp_path: Path) -> None:
    files = {"runner.py": RUNNER, "masked.py": MASKED.replace("CALL", ALL), "main.py": MAIN}
    results = rewrite_files(files, device="cpu")
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    (told,) = found(results["masked.py"], "AMP220")
    assert told.review == "look"
    texts = texts_of(results)
    assert run_files(tmp_path, texts, "main.py") == 2
    assert run_files(tmp_path, {**texts, "others.py": OTHERS}, "others.py") == 3


@pytest.mark.parametrize(
    "call", ["super().__init__(*args)", "super().__init__(*args, **{})", "super().__init__(**kwargs)"]
)
def test_what_hands_a_part_on_has_to_be_given_it(call: str) -> None:
    results = rewrite_files({"runner.py": RUNNER, "masked.py": MASKED.replace("CALL", call), "main.py": MAIN})
    told = [f for r in results.values() for f in r.findings if f.code in ("AMP213", "AMP220")]
    assert not any("hands what it is given on" in f.message for f in told)
    assert not any(
        "masked.py:11" in f.message for f in told
    )  # where the constructor of another class calls that of its base


def test_what_somebody_makes_is_given_the_scaler() -> None:
    made = MAIN.replace("from runner import Runner", "from masked import Masked").replace("Runner(", "Masked(")
    results = rewrite_files({"runner.py": RUNNER, "masked.py": MASKED.replace("CALL", ALL), "main.py": made})
    assert "Masked(scaler, model" in (results["main.py"].after or "")


FITS = """
import json

import torch
from apex import amp


class Fit:
    def __init__(self, *args, **kwargs):
        self.done = self.go(*args, **kwargs)

    def go(self, model, optimizer, steps=3):
        for _ in range(steps):
            loss = model(torch.ones(1, 2)).sum()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
        return steps


class Longer(Fit):
    pass


def main():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    MADE
        count = kind(model, optimizer, steps=2).done
    print(json.dumps(count))


main()
"""


MADE = [
    "for kind in (Fit, Longer):",
    "for kind in [Longer]:",
    "for kind in {'a': Fit}.values():",
    "for kind in [globals()['Longer']]:",
]


@pytest.mark.parametrize("made", MADE)
def test_a_class_that_is_made_by_another_name_owes_the_scaler(made: str, tmp_path: Path) -> None:
    texts = check_files({"main.py": FITS.replace("MADE", made)}, device="cpu")
    assert run_files(tmp_path, texts, "main.py") == 2
