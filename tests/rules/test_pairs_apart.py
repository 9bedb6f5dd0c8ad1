"""Pairs that are no `if` and `else`: opposite `if`s, or a branch that returns above the plain side. What is emitted is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

PROGRAM = """
import json

import torch
from apex import amp


class Trainer:
    def __init__(self, fp16):
        torch.manual_seed(0)
        self.fp16 = fp16
        self.count = 0
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if fp16:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def backward(self, loss):
        BACKWARD

    def step(self):
        loss = self.model(torch.ones(2, 4)).float().sum() * 1e-3
        self.optimizer.zero_grad()
        self.backward(loss)
        self.optimizer.step()


def run(fp16):
    trainer = Trainer(fp16)
    before = trainer.model.weight.detach().clone()
    for _ in range(2):
        trainer.step()
    return [round(float((before - trainer.model.weight).detach().sum()), 4), trainer.count]


if __name__ == "__main__":
    print(json.dumps([run(True), run(False)]))
"""
APEX = "with amp.scale_loss(loss, self.optimizer) as scaled:\n    scaled.backward()"


def block(text: str) -> str:
    return PROGRAM.replace("BACKWARD", text.replace("APEX", APEX.replace("\n", "\n    ")).replace("\n", "\n        "))


@pytest.mark.parametrize(
    "written",
    [
        "if self.fp16:\n    APEX\n    return\nloss.backward()",
        "if not self.fp16:\n    loss.backward()\n    return\n" + APEX,
        "if self.fp16:\n    APEX\nif not self.fp16:\n    loss.backward()",
        "if not self.fp16:\n    loss.backward()\nif self.fp16:\n    APEX",
        "if self.fp16 is True:\n    APEX\nif self.fp16 is not True:\n    loss.backward()",
    ],
)
def test_one_side_stays(written: str, tmp_path: Path) -> None:
    texts = check_files({"train.py": block(written)}, device="cpu")
    body = texts["train.py"].partition("def backward(self, loss):\n")[2].partition("\n\n")[0]
    assert body == "        self.scaler.scale(loss).backward()"
    assert run_files(tmp_path, texts, "train.py") == [[0.0032, 0], [0.0032, 0]]


def test_what_is_given_back_is(tmp_path: Path) -> None:
    source = block("if self.fp16:\n    APEX\n    return loss\nloss.backward()\nreturn loss")
    texts = check_files({"train.py": source}, device="cpu")
    assert "        self.scaler.scale(loss).backward()\n        return loss\n\n" in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py") == [[0.0032, 0], [0.0032, 0]]


@pytest.mark.parametrize(
    ("written", "counts"),
    [
        ("if self.fp16:\n    APEX\n    return\nloss.backward()\nself.count += 1", [0, 2]),
        ("if self.fp16:\n    APEX\n    self.count += 1\nif not self.fp16:\n    loss.backward()", [2, 0]),
        ("if self.fp16:\n    APEX\nself.count += 1\nif not self.fp16:\n    loss.backward()", [2, 2]),
    ],
)
def test_sides_that_do_more_stay_apart(written: str, counts: list[int], tmp_path: Path) -> None:
    texts = check_files({"train.py": block(written)}, device="cpu")
    assert texts["train.py"].count("self.fp16:") == 1 + written.count("not ")
    assert run_files(tmp_path, texts, "train.py") == [[0.0032, counts[0]], [0.0032, counts[1]]]


@pytest.mark.parametrize(
    "written",
    [
        "if self.fp16:\n    APEX\n    self.fp16 = False\nif not self.fp16:\n    loss.backward()\n    self.fp16 = False",
        "if self.fp16:\n    APEX\n    return loss\nloss.backward()",
    ],
)
def test_a_test_that_its_own_branch_changes_and_another_result(written: str) -> None:
    after = rewrite(block(written)).after
    assert after is not None
    assert "if self.fp16:" in after.partition("def backward")[2]


@pytest.mark.parametrize(
    ("around", "above"),
    [
        ("with torch.enable_grad():", ""),
        ("for _ in range(3):", ""),
        ("try:", "finally:\n    pass\n"),
        ("if loss is not None:", ""),
    ],
)
def test_a_return_that_leaves_more_than_its_branch_stays(around: str, above: str, tmp_path: Path) -> None:
    sides = "if self.fp16:\n        APEX\n        return\n    loss.backward()\n    return"
    apex = APEX.replace("\n", "\n        ")
    source = PROGRAM.replace(
        "BACKWARD", f"{around}\n    {sides}\n{above}self.count += 1".replace("APEX", apex).replace("\n", "\n        ")
    )
    texts = check_files({"train.py": source}, device="cpu")
    assert "self.scaler.scale(loss).backward()\n            return\n" in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py") == [[0.0032, 0], [0.0032, 0]]


@pytest.mark.parametrize("calls", ["self.turn()", "turn(self)"])
def test_a_test_that_what_its_branch_calls_changes(calls: str) -> None:
    written = f"if self.odd:\n    APEX\n    {calls}\nif not self.odd:\n    loss.backward()\n    {calls}"
    source = block(written)
    source = source.replace("        self.fp16 = fp16\n", "        self.fp16 = fp16\n        self.odd = True\n")
    source = source.replace("scaled.backward()", "scaled.backward(retain_graph=True)")
    source = source.replace("loss.backward()", "loss.backward(retain_graph=True)")
    source = source.replace(
        "    def step(self):",
        "    def turn(self):\n        self.odd = not self.odd\n        self.count += 1\n\n    def step(self):",
    ).replace("\n\ndef run(", "\n\ndef turn(trainer):\n    trainer.turn()\n\n\ndef run(")
    after = rewrite(source, device="cpu").after
    assert after is None or "if not self.odd:" in after
