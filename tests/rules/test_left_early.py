"""An object whose constructor left above initialize has a scaler, too, where an evaluation asks it."""

from __future__ import annotations

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
