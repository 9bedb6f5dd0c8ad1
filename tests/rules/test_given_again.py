"""A flag that is given another value below the set-up is no switch: regions ask the scaler, or a variable. What is emitted is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

PROGRAM = """
import json
from argparse import Namespace

import torch
from apex import amp


class Config(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


def predict(cfg, model):
    with torch.no_grad():
        return str(model(torch.ones(1, 4)).dtype)


def main(cfg):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ABOVE
    if ASKED:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    BELOW
    for _ in range(2):
        loss = model(torch.ones(2, 4)).float().sum()
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    return predict(cfg, model)


if __name__ == "__main__":
    print(json.dumps([main(MADE(fp16=True)), main(MADE(fp16=False))]))
"""
HALF, FULL = "torch.float16", "torch.float32"


def program(asked: str, above: str = "pass", below: str = "pass", made: str = "Config") -> str:
    filled = PROGRAM.replace("ASKED", asked).replace("ABOVE", above).replace("BELOW", below).replace("MADE", made)
    return filled.replace("    pass\n", "")


@pytest.mark.parametrize(
    ("asked", "given", "made"),
    [
        ('cfg["fp16"]', 'cfg["fp16"] = False', "Config"),
        ('cfg["fp16"]', 'cfg["fp16"] = not cfg["fp16"]', "Config"),
        ("cfg.fp16", "cfg.fp16 = False", "Config"),
        ("cfg.fp16", 'cfg["fp16"] = False', "Config"),
        ('cfg["fp16"]', "cfg.update(fp16=False)", "Config"),
        ('cfg.get("fp16")', 'cfg.update({"fp16": False})', "Config"),
        ('cfg.get("fp16", False)', 'cfg.pop("fp16")', "Config"),
        ('cfg["fp16"]', 'del cfg["fp16"]', "Config"),
        ("cfg.fp16", 'setattr(cfg, "fp16", False)', "Namespace"),
        ("cfg.fp16", 'delattr(cfg, "fp16")', "Namespace"),
        ("cfg.fp16", 'vars(cfg)["fp16"] = False', "Namespace"),
        ("cfg.fp16", 'cfg.__dict__["fp16"] = False', "Namespace"),
        ("cfg.fp16", "vars(cfg).update(fp16=False)", "Namespace"),
        ("getattr(cfg, 'fp16', False)", "cfg.fp16 = False", "Namespace"),
        ("cfg.fp16", "options = cfg\n    options.fp16 = False", "Namespace"),
    ],
)
def test_what_is_asked_below_is_what_the_set_up_asked(asked: str, given: str, made: str, tmp_path: Path) -> None:
    texts = check_files({"train.py": program(asked, below=given, made=made)}, device="cpu")
    assert texts["train.py"].count("enabled=scaler.is_enabled()") == 2
    assert run_files(tmp_path, texts, "train.py") == [HALF, FULL]


@pytest.mark.parametrize(
    ("asked", "above", "below"),
    [
        ('cfg["fp16"]', 'cfg["fp16"] = cfg["fp16"] and torch.get_num_threads() > 0', "pass"),
        ('cfg["fp16"]', "pass", 'other = dict(fp16=cfg["fp16"])\n    other["fp16"] = False'),
        ('cfg["fp16"]', "pass", 'cfg["fp32"] = False'),
        ("cfg.fp16", "pass", 'cfg.update(seed=1)\n    setattr(cfg, "seed", 2)'),
    ],
)
def test_a_flag_that_stays_is_asked_itself(asked: str, above: str, below: str, tmp_path: Path) -> None:
    texts = check_files({"train.py": program(asked, above, below)}, device="cpu")
    assert "is_enabled()" not in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py") == [HALF, FULL]


def test_without_a_scaler_to_ask_it_is_kept_in_a_variable(tmp_path: Path) -> None:
    texts = check_files(
        {"train.py": program('cfg["fp16"]', below='cfg["fp16"] = False')}, device="cpu", dtype="bfloat16"
    )
    assert 'use_amp = bool(cfg["fp16"])\n' in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py") == ["torch.bfloat16", FULL]


def test_a_function_that_gives_it_and_is_called_below() -> None:
    source = program("cfg.fp16", below="finish(cfg)")
    source = source.replace("def predict", "def finish(args):\n    args.fp16 = False\n\n\ndef predict")
    after = rewrite(source).after
    assert after is not None
    assert after.count("enabled=scaler.is_enabled()") == 2
    earlier = rewrite(
        source.replace("    finish(cfg)\n", "").replace("    model = torch", "    finish(cfg)\n    model = torch")
    )
    assert earlier.after is not None
    assert "is_enabled" not in earlier.after


OBJECT = """
import torch
from apex import amp


class Other:
    def __init__(self, fp16):
        self.fp16 = fp16


class Trainer:
    def __init__(self, model, optimizer, fp16):
        self.fp16 = fp16
        self.model, self.optimizer = model, optimizer

    def set_up(self):
        if self.fp16:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def step(self, x):
        loss = self.model(x).mean()
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
        self.optimizer.step()

    def finish(self):
        SET
"""


@pytest.mark.parametrize(
    ("given", "settled"),
    [("self.done = True", True), ("self.fp16 = False", False), ("Other(False).fp16 = False", True)],
)
def test_what_constructors_give_their_objects_is_given_once(given: str, settled: bool) -> None:
    after = rewrite(OBJECT.replace("SET", given), dtype="bfloat16").after
    assert after is not None
    assert ("enabled=bool(self.fp16)" in after) is settled
    assert ("self.use_amp = bool(self.fp16)" in after) is not settled


@pytest.mark.parametrize(
    ("above", "run", "settled"),
    [
        (
            "if torch.get_num_threads() < 0:\n    FP16 = False",
            "commands = {'main': main}\ncommands['main'](Config(fp16=True))",
            True,
        ),
        ("if torch.get_num_threads() < 0:\n    FP16 = False", "print(main(Config(fp16=True)))", True),
        ("", "print(main(Config(fp16=True)))\nFP16 = False\nprint(main(Config(fp16=True)))", False),
    ],
)
def test_what_a_file_gives_as_it_is_loaded(above: str, run: str, settled: bool) -> None:
    source = program("FP16").replace("class Config", f"FP16 = True\n{above}\n\n\nclass Config")
    head = source.partition('if __name__ == "__main__":')[0]
    after = rewrite(head + run + "\n").after
    assert after is not None
    assert ("enabled=FP16" in after.partition("GradScaler")[2].partition("\n")[2]) is settled
