"""Whether a loss is scaled at O0, and only where Apex scaled it (AMP532)."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts, doubts_of

BEFORE = """
import argparse
import torch
from apex import amp


def train(args, model, optimizer, loader):
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level SCALE)
    for x, y in loader:
        loss = (model(x) - y).mean()
        if ASKED:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--opt_level", default="O0" CHOICES)
    args = parser.parse_args()
    model = torch.nn.Linear(4, 2).cuda()
    train(args, model, torch.optim.SGD(model.parameters(), lr=0.1), [])
"""
AFTER = """
import argparse
import torch


def train(args, model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda", enabled=ENABLED)
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16 and args.opt_level != "O0"):
            loss = (model(x) - y).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--opt_level", default="O0" CHOICES)
    args = parser.parse_args()
    model = torch.nn.Linear(4, 2).cuda()
    train(args, model, torch.optim.SGD(model.parameters(), lr=0.1), [])
"""
DYNAMIC, CASTS = ', loss_scale="dynamic"', 'args.fp16 and args.opt_level != "O0"'


NATIVE = """\
    native = torch.amp.GradScaler("cuda", enabled=args.fp16)
    for x, y in loader:
        if args.native:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = (model(x) - y).mean()
            native.scale(loss).backward()
            native.step(optimizer)
            native.update()
            continue
"""


def at_o0(
    scale: str, enabled: str, asked: str = "args.fp16", loop: str = "    for x, y in loader:\n", choices: str = ""
) -> list[Doubt]:
    before, after = (t.replace("CHOICES", choices).replace("    for x, y in loader:\n", loop) for t in (BEFORE, AFTER))
    found = doubts(before.replace("SCALE", scale).replace("ASKED", asked), after.replace("ENABLED", enabled))
    return [d for d in found if d.code == "AMP532" and "O0" in d.message]


@pytest.mark.parametrize(
    ("scale", "enabled", "wanted"),
    [
        (DYNAMIC, "args.fp16", ""),
        (DYNAMIC, CASTS, "scaled the loss in float32 where fp16, and left out steps"),
        (DYNAMIC, "False", "scaled the loss in float32"),
        (", loss_scale=None", CASTS, ""),
        ("", CASTS, ""),
        ("", "args.fp16", "left the loss unscaled where fp16, and took every step"),
        (", loss_scale=args.scale", "args.fp16", ""),  # whatever that is
        (", loss_scale=128.0", CASTS, ""),  # which left out no step
        (", **options", CASTS, ""),
    ],
)
def test_the_scaler_is_on_in_the_runs_that_scaled(scale: str, enabled: str, wanted: str) -> None:
    found = at_o0(scale, enabled)
    assert [(d.line, d.verdict) for d in found] == ([(8, "review")] if wanted else [])
    assert not wanted or wanted in found[0].message


@pytest.mark.parametrize(("enabled", "lost"), [(CASTS, False), ("args.fp16", True)])
def test_a_loss_that_was_only_scaled_at_other_levels(enabled: str, lost: bool) -> None:
    found = at_o0(DYNAMIC, enabled, asked=CASTS)
    assert ["left the loss unscaled" in d.message for d in found] == ([True] if lost else [])


@pytest.mark.parametrize(("choices", "count"), [("'O1', 'O2'", 0), ("'O0', 'O1'", 1)])
def test_only_where_some_run_may_be_at_o0(choices: str, count: int) -> None:
    assert len(at_o0(DYNAMIC, CASTS, choices=f", choices=[{choices}]")) == count


def test_a_native_side_scales_as_it_did() -> None:
    assert not at_o0(DYNAMIC, "args.fp16", loop=NATIVE)
    assert len(at_o0(DYNAMIC, CASTS, loop=NATIVE)) == 1


LOSSES = "def of(model, x):\n    return model(x).mean()\n"
SCRIPT = """
import argparse
import torch
IMPORT
from data import loader
from losses import of

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
SET_UP
for x in loader:
    REGION
        loss = of(model, x)
    SCALE
"""
TRAINER = """
import torch
IMPORT
from losses import of

class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg

    def begin(self, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        SET_UP
        self.model, self.optimizer = model, optimizer

    def train(self):
        for x in self.cfg.loader:
            REGION
                loss = of(self.model, x)
            SCALE
"""


def of_two(level: str) -> list[str]:
    """What is said of a script, and of a trainer beside it which may be at O0."""
    texts: tuple[dict[str, str], dict[str, str]] = ({"losses.py": LOSSES}, {})
    for path, text, cfg, own, asked in (
        ("script.py", SCRIPT, "args", "", level),
        ("trainer.py", TRAINER, "self.cfg", "self.", "self.cfg.level"),
    ):
        flag = f"{cfg}.fp16" + (f' and {asked} != "O0"' if asked.startswith(cfg) else "")
        for side, marks in zip(
            texts,
            (
                {
                    "IMPORT": "from apex import amp",
                    "SET_UP": f"if {cfg}.fp16:\nINDENT    model, optimizer = amp.initialize(model, optimizer, opt_level={asked})",
                    "REGION": "if True:",
                    "SCALE": f"with amp.scale_loss(loss, {own}optimizer) as scaled:\nDEEPER    scaled.backward()",
                },
                {
                    "IMPORT": "",
                    "SET_UP": f'{own}scaler = torch.amp.GradScaler("cuda", enabled={flag})',
                    "REGION": f'with torch.autocast("cuda", dtype=torch.float16, enabled={own}scaler.is_enabled()):',
                    "SCALE": f"{own}scaler.scale(loss).backward()",
                },
            ),
            strict=True,
        ):
            for mark, instead in {
                **marks,
                "INDENT": "        " if own else "",
                "DEEPER": "            " if own else "    ",
            }.items():
                text_now = side.get(path, text)
                side[path] = text_now.replace(mark, instead)
    return [d.message for d in doubts_of(*texts) if d.code == "AMP532" and "O0" in d.message]


def test_a_set_up_of_another_program_is_no_matter() -> None:
    assert of_two('"O1"') == []
