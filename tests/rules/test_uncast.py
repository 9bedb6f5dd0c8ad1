"""Functions that run the model in a mode in which Apex was never set up: no region there, and no reason to leave the rest."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

PROGRAM = """
import torch
from apex import amp


class Trainer:
    def __init__(self, model, half):
        self.model = model
        self.half = half

    def set_optimizer(self, optimizer):
        if self.half:
            self.model, optimizer = amp.initialize(self.model, optimizer, opt_level="O1")
        self.optimizer = optimizer

    def train(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            loss = self.model(x).pow(2).mean()
            if self.half:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()


class Task:
    def __init__(self, half):
        self.model = torch.nn.Linear(4, 2)
        self.trainer = Trainer(self.model, half)

    def fit(self, loader):
        self.trainer.set_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        self.trainer.train(loader)

    def trial(self, loader):
        with torch.no_grad():
            return [self.model(x) for x in loader]


if __name__ == "__main__":
    import sys

    mode = sys.argv[1]
    loader = [torch.randn(3, 4) for _ in range(3)]
    task = Task(True)
    if mode == "train":
        task.fit(loader)
    elif mode == "output":
        print({str(y.dtype) for y in task.trial(loader)})
"""


def test_a_mode_without_initialize_keeps_its_precision_and_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    result = rewrite(PROGRAM, device="cpu")
    assert result.after is not None
    assert not [f for f in result.findings if f.status == "manual"], result.findings
    assert PROGRAM[PROGRAM.index("    def trial") :] in result.after
    assert not [f for f in result.findings if f.code == "AMP502"], "it ran in float32, and does"
    for mode, printed in (("output", "{'torch.float32'}\n"), ("train", "")):
        with monkeypatch.context() as patched, contextlib.redirect_stdout(io.StringIO()) as out:
            patched.setattr("sys.argv", ["task.py", mode])
            exec(compile(result.after, "task.py", "exec"), {"__name__": "__main__"})
        assert out.getvalue() == printed
    assert rewrite(result.after, device="cpu").after is None


@pytest.mark.parametrize("call", ["task.trainer.train(loader)", "Trainer(task.model, True).train(loader)"])
def test_training_without_initialize_is_not_left_without_its_region(call: str) -> None:
    """Such a run failed before: what it trains keeps its region."""
    result = rewrite(PROGRAM.replace("print({str(y.dtype) for y in task.trial(loader)})", call), device="cpu")
    assert not [f for f in result.findings if f.code == "AMP502" and "in a region" in f.message and f.line < 31]


SCRIPT = """
import argparse
import json

import torch
from apex import amp


def main():
    global args
    parser = argparse.ArgumentParser()
    parser.add_argument("--opt-level", default="O1")
    args = parser.parse_args()
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level)
    for x in [torch.ones(3, 4)] * 2:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    print(json.dumps(validate(model, [torch.ones(3, 4)])))


def validate(model, loader):
    with torch.no_grad():
        return [str(model(x).dtype) for x in loader]


if __name__ == "__main__":
    main()
"""
OTHER = """
import json

import torch
from train import validate

print(json.dumps(validate(torch.nn.Linear(4, 2), [torch.ones(3, 4)])))
"""


def test_a_switch_that_another_script_lacks_is_handed_to_what_both_run(tmp_path: Path) -> None:
    """Evaluation after training is half as it was; the other script never set Apex up, and stays in float32."""
    texts = check_files({"train.py": SCRIPT, "evaluate.py": OTHER}, device="cpu")
    assert "def validate(model, loader, use_amp=False):" in texts["train.py"]
    assert texts["evaluate.py"] == OTHER.lstrip("\n")
    assert run_files(tmp_path, texts, "train.py") == ["torch.float16"]
    assert run_files(tmp_path, texts, "evaluate.py") == ["torch.float32"]
