"""A program with a scaler of its own beside Apex, by two options: where it refuses both together, no loss is scaled twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

PROGRAM = """
import argparse
import contextlib
import json

import torch


class Trainer:
    def __init__(self, model, optimizer, native, apex_amp):
        self.model, self.optimizer = model, optimizer
        self.native = native
        self.apex_amp = apex_amp
        if native:
            self._scaler = torch.amp.GradScaler("cpu")

    def update(self, x, y):
        with torch.autocast("cpu") if self.native else contextlib.nullcontext():
            loss = torch.nn.functional.mse_loss(self.model(x), y)
        if self.native:
            loss = self._scaler.scale(loss)
        if self.apex_amp:
            with apex.amp.scale_loss(loss, self.optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        if self.native:
            self._scaler.step(self.optimizer)
            self._scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


HELPERS

parser = argparse.ArgumentParser()
OPTIONS
args = parser.parse_args(["--apex-amp"])
CHECK
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.apex_amp:
    import apex.amp

    model, optimizer = apex.amp.initialize(model, optimizer, opt_level="O1")
trainer = Trainer(model, optimizer, args.amp, args.apex_amp)
print(json.dumps([trainer.update(torch.ones(2, 4), torch.ones(2, 1)) for _ in range(9)]))
"""
OPTIONS = """
parser.add_argument("--amp", action="store_true")
parser.add_argument("--apex-amp", action="store_true")
"""
GROUP = """
modes = parser.add_mutually_exclusive_group()
modes.add_argument("--amp", action="store_true")
modes.add_argument("--apex-amp", action="store_true")
"""
CHECKED = """
def check(holds, message):
    if not holds:
        raise SystemExit(message)


def validate(options):
    check(not (options.amp and options.apex_amp), "either of them")
"""
CHECKS = {
    "raises": ("", OPTIONS, 'if args.amp and args.apex_amp:\n    raise SystemExit("either of them")'),
    "exits": ("import sys", OPTIONS, 'if args.amp and args.apex_amp:\n    print("either")\n    sys.exit(1)'),
    "asserts": ("", OPTIONS, "assert not (args.amp and args.apex_amp)"),
    "checked by a function": (CHECKED, OPTIONS, 'check(not (args.amp and args.apex_amp), "either of them")'),
    "checked by a function of a function": (CHECKED, OPTIONS, "validate(args)"),
    "by the command line": ("", GROUP, ""),
}


def program(helpers: str, options: str, check: str) -> str:
    return PROGRAM.replace("HELPERS", helpers).replace("OPTIONS", options).replace("CHECK", check)


@pytest.mark.parametrize("given", CHECKS.values(), ids=CHECKS)
def test_what_the_program_refuses_is_no_obstacle(given: tuple[str, str, str], tmp_path: Path) -> None:
    texts = check_files({"train.py": program(*given)}, device="cpu")
    assert "scaler.scale(loss).backward()" in texts["train.py"]
    losses = run_files(tmp_path, texts, "train.py")
    assert losses[-1] < losses[0]


LET_THROUGH = {
    "nothing is checked": ("", OPTIONS, ""),
    "another combination": ("", OPTIONS, "if args.amp and not args.apex_amp:\n    raise SystemExit"),
    "only told": ("", OPTIONS, 'if args.amp and args.apex_amp:\n    print("slow")'),
    "set after the check": (
        "",
        OPTIONS,
        "if args.amp and args.apex_amp:\n    raise SystemExit\nif torch.cuda.is_available():\n    args.amp = True",
    ),
    "checked in some runs": (CHECKED, OPTIONS, "if args.amp:\n    pass\nelse:\n    validate(args)"),
    "a function that returns first": (
        CHECKED.replace("    if not holds", "    if message:\n        return\n    if not holds"),
        OPTIONS,
        "validate(args)",
    ),
    "options of two groups": ("", GROUP.replace('modes.add_argument("--apex', 'parser.add_argument("--apex'), ""),
}


@pytest.mark.parametrize("given", LET_THROUGH.values(), ids=LET_THROUGH)
def test_what_the_program_lets_through_is(given: tuple[str, str, str]) -> None:
    (result,) = rewrite_files({"train.py": program(*given)}, device="cpu").values()
    assert result.after is None
    assert any(f.code == "AMP231" and "twice" in f.message for f in result.findings)
