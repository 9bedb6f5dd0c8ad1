"""A loss scale that is dynamic at O0, too: the scaler does not ask for the level, the regions do. What is emitted is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files

PROGRAM = """
import argparse
import json

import torch
from apex import amp


def evaluate(model):
    with torch.no_grad():
        return str(model(torch.ones(1, 4)).dtype)


def train(args):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level, loss_scale="dynamic")
    for factor in (1.0, float("inf"), 1.0):
        loss = model(torch.ones(2, 4)).float().sum() * factor
        optimizer.zero_grad()
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
    return [evaluate(model), bool(torch.isfinite(model.weight).all())]


if __name__ == "__main__":
    runs = [(False, "O0"), (False, "O1"), (True, "O0"), (True, "O1")]
    print(json.dumps([train(argparse.Namespace(fp16=fp16, level=level)) for fp16, level in runs]))
"""
PLAIN, SCALED = ["torch.float32", False], ["torch.float32", True]


def enabled(text: str) -> list[str]:
    """What the scaler of a program is enabled by, and then the regions where it trains."""
    (scaler,) = re.findall(r"GradScaler\((.*)\)\n", text)
    regions = re.findall(r"with torch.autocast\(.*enabled=(.*?)\):", text)
    return [scaler.partition("enabled=")[2], *regions[-1:]]


def test_a_run_at_o0_leaves_out_the_steps_that_apex_left_out(tmp_path: Path) -> None:
    texts = check_files({"train.py": PROGRAM}, device="cpu")
    assert enabled(texts["train.py"]) == ["args.fp16", "use_amp"]
    assert 'use_amp = args.fp16 and args.level != "O0"\n' in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py") == [PLAIN, PLAIN, SCALED, ["torch.float16", True]]


FIELDS = """
import argparse
import json

import torch
from apex import amp


class Trainer:
    def __init__(self, config):
        torch.manual_seed(0)
        self.config = config
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        if config.fp16:
            self.model, self.optimizer = amp.initialize(
                self.model, self.optimizer, opt_level=config.level, loss_scale="dynamic"
            )

    def step(self, factor):
        loss = self.model(torch.ones(2, 4)).float().sum() * factor
        self.optimizer.zero_grad()
        if self.config.fp16:
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        self.optimizer.step()

    def evaluate(self):
        with torch.no_grad():
            return str(self.model(torch.ones(1, 4)).dtype)


def train(config):
    trainer = Trainer(config)
    for factor in (1.0, float("inf"), 1.0):
        trainer.step(factor)
    return [trainer.evaluate(), bool(torch.isfinite(trainer.model.weight).all())]


if __name__ == "__main__":
    runs = [(False, "O0"), (False, "O1"), (True, "O0"), (True, "O1")]
    print(json.dumps([train(argparse.Namespace(fp16=fp16, level=level)) for fp16, level in runs]))
"""


def test_an_object_keeps_both_switches(tmp_path: Path) -> None:
    texts = check_files({"train.py": FIELDS}, device="cpu")
    assert enabled(texts["train.py"]) == ["config.fp16", "self.use_amp"]
    assert run_files(tmp_path, texts, "train.py") == [PLAIN, PLAIN, SCALED, ["torch.float16", True]]


def test_functions_of_another_file_are_given_both(tmp_path: Path) -> None:
    head, _, rest = PROGRAM.partition("def evaluate")
    body, _, train = rest.partition("\n\ndef train")
    files = {
        "steps.py": f"import torch\n\n\ndef evaluate{body}",
        "train.py": f"{head}from steps import evaluate\n\n\ndef train{train}",
    }
    texts = check_files(files, device="cpu")
    assert "def evaluate(model, use_amp=False):" in texts["steps.py"]
    assert "evaluate(model, use_amp=use_amp)" in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py") == [PLAIN, PLAIN, SCALED, ["torch.float16", True]]


@pytest.mark.parametrize(
    ("given", "level", "asked", "wanted"),
    [
        ('loss_scale="dynamic"', "args.level", "args.fp16", ["args.fp16", "use_amp"]),
        ('loss_scale="dynamic"', '"O0"', "args.fp16", ["args.fp16"]),
        ('loss_scale="dynamic"', '"O1"', "args.fp16", ["args.fp16", "args.fp16"]),
        ("loss_scale=None", "args.level", "args.fp16", ['args.fp16 and args.level != "O0"', "scaler.is_enabled()"]),
        ("loss_scale=128.0", "args.level", "args.fp16", ['args.fp16 and args.level != "O0"', "scaler.is_enabled()"]),
        (
            'loss_scale="dynamic"',  # which it does not come to at O0
            "args.level",
            'args.fp16 and args.level != "O0"',
            ['args.fp16 and args.level != "O0"', "scaler.is_enabled()"],
        ),
        (
            'loss_scale="dynamic", enabled=args.level != "O0"',
            "args.level",
            "args.fp16",
            ['args.fp16 and args.level != "O0"', "scaler.is_enabled()"],
        ),
    ],
)
def test_the_level_is_asked_for_by_the_regions_alone_where_o0_scales(
    given: str, level: str, asked: str, wanted: list[str]
) -> None:
    source = PROGRAM.replace('opt_level=args.level, loss_scale="dynamic"', f"opt_level={level}, {given}")
    result = rewrite(
        source.replace("        if args.fp16:\n            with", f"        if {asked}:\n            with")
    )
    assert result.after is not None
    assert enabled(result.after) == wanted
    told = [f for f in result.findings if "and now the scaling, too" in f.message]
    assert bool(told) is (given == "loss_scale=128.0")


def test_a_set_up_without_a_switch_scales_in_every_run(tmp_path: Path) -> None:
    source = PROGRAM.replace("    if args.fp16:\n        model,", "    model,")
    source = source.replace(
        "        if args.fp16:\n            with amp.scale_loss(loss, optimizer) as scaled_loss:\n"
        "                scaled_loss.backward()\n        else:\n            loss.backward()\n",
        "        with amp.scale_loss(loss, optimizer) as scaled_loss:\n            scaled_loss.backward()\n",
    )
    texts = check_files({"train.py": source}, device="cpu")
    assert enabled(texts["train.py"]) == ["", 'args.level != "O0"']
    half = ["torch.float16", True]
    assert run_files(tmp_path, texts, "train.py") == [SCALED, half, SCALED, half]


@pytest.mark.parametrize(
    "written",
    [
        "    if ASKED:\n        APEX\n        return\n    loss.backward()\n",
        "    if not (ASKED):\n        loss.backward()\n        return\n    APEX\n",
        "    if ASKED:\n        APEX\n    if not (ASKED):\n        loss.backward()\n",
    ],
)
@pytest.mark.parametrize("asked", ["args.fp16", 'args.level != "O0"'])
def test_a_plain_side_that_is_written_apart(written: str, asked: str) -> None:
    scaling = written.replace("ASKED", asked).replace("not (args.fp16)", "not args.fp16")
    scaled = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n"
    for depth in ("    ", "        "):
        scaling = scaling.replace(f"\n{depth}APEX", f"\n{depth}{scaled}{depth}    scaled_loss.backward()")
    head, _, rest = PROGRAM.partition("        if args.fp16:\n            with")
    tail = rest.partition("            loss.backward()\n")[2]
    source = f"{head}        backward(args, loss, optimizer)\n{tail}".replace(
        "def train", f"def backward(args, loss, optimizer):\n{scaling}\n\ndef train"
    )
    after = rewrite(source).after
    assert after is not None
    own = "args.fp16" if asked == "args.fp16" else 'args.fp16 and args.level != "O0"'
    assert enabled(after)[0] == own


@pytest.mark.parametrize(
    ("scale", "made", "at_o0"), [('"dynamic"', "", SCALED), ("None", ', enabled=args.level != "O0"', PLAIN)]
)
def test_what_the_calls_of_a_helper_stand_under_counts(
    scale: str, made: str, at_o0: list[object], tmp_path: Path
) -> None:
    source = PROGRAM.replace(
        "        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level,",
        "        model, optimizer = prepare(model, optimizer, args.level)\n    #",
    ).replace(
        "def train",
        "def prepare(model, optimizer, level):\n"
        f"    return amp.initialize(model, optimizer, opt_level=level, loss_scale={scale})\n\n\ndef train",
    )
    texts = check_files({"train.py": source}, device="cpu")
    assert f'        scaler = torch.amp.GradScaler("cpu"{made})\n' in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py") == [PLAIN, PLAIN, at_o0, ["torch.float16", True]]
