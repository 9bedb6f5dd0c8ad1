"""Functions that train and that a program chooses between: it is the one name of both that is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

STEPS = """
from apex import amp


def one(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    return "one"


def two(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        loss = (model(x) - y).abs().mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    return "two"
"""
MAIN = """
import json

import steps
import torch
from apex import amp

settings = {"classes": 2, "level": "O1"}
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level=settings["level"])
CHOICE
print(json.dumps(train(model, optimizer, [(torch.ones(3, 2), torch.ones(3, 1))])))
"""
CHOICES = {
    "expression": 'train = steps.one if settings["classes"] == 1 else steps.two',
    "statement": 'if settings["classes"] == 1:\n    train = steps.one\nelse:\n    train = steps.two',
    "among three": 'n = settings["classes"]\ntrain = steps.one if n == 1 else steps.two if n == 2 else steps.one',
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES.keys())
def test_each_may_be_called_by_the_name_for_both(choice: str, tmp_path: Path) -> None:
    # Two programs: that of each loss is told by who calls it.
    main = MAIN.replace("CHOICE", choice)
    texts = check_files({"steps.py": STEPS, "first.py": main, "second.py": main.replace('"O1"', '"O0"')}, device="cpu")
    assert texts["steps.py"].count("(model, optimizer, scaler, batches):") == 2
    assert "train(model, optimizer, scaler, [" in texts["first.py"]
    assert run_files(tmp_path, texts, "first.py") == "two"
    assert run_files(tmp_path, texts, "second.py") == "two"


@pytest.mark.parametrize("choice", ["train = pick(steps.one, steps.two)", "train = steps.one if chosen() else other()"])
def test_what_something_else_gives_is_not_known(choice: str) -> None:
    main = MAIN.replace("CHOICE", f"from elsewhere import *\n{choice}")
    results = rewrite_files({"steps.py": STEPS, "first.py": main, "second.py": main}, device="cpu")
    assert all("train(model, optimizer, [" in (r.after or r.before) for r in results.values() if r.path != "steps.py")
