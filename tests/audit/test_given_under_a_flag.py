"""A model that Apex was only given under a flag beside the switch, at a level that may be O2: AMP531."""

from __future__ import annotations

import pytest

from tests.audit.helpers import Doubt, doubts

PROGRAM = """
import argparse
import torch
import torch.nn.functional as F
IMPORT

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--freeze", action="store_true")
parser.add_argument("--level", default="DEFAULT")
args = parser.parse_args()

class Backbone(torch.nn.Module):
    def forward(self, x):
        return x @ x

class Head(torch.nn.Module):
    def forward(self, x):
        return x @ x

backbone = Backbone().cuda()
head = Head().cuda()
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
SETUP
for x, y in loader:
    STEP
"""
SETUP = """
if args.fp16:
    if args.freeze:
        head, optimizer = amp.initialize(head, optimizer, opt_level=LEVEL)
    else:
        (backbone, head), optimizer = amp.initialize([backbone, head], optimizer, opt_level=LEVEL)
"""
OF_ALL = """
if args.fp16:
    if args.freeze:
        (backbone, head), optimizer = amp.initialize([backbone, head], optimizer, opt_level=LEVEL)
    else:
        head, optimizer = amp.initialize(head, optimizer, opt_level=LEVEL)
        backbone = amp.initialize(backbone, opt_level=LEVEL)
"""
STEP = """
    features = backbone(x)
    loss = F.cross_entropy(head(features), y)
    if args.fp16:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
    optimizer.step()
"""
AFTER_STEP = """
    with torch.autocast("cuda", dtype=torch.float16, enabled=args.fp16):
        features = backbone(x)
        loss = F.cross_entropy(head(features), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def said(level: str, default: str = "O1", setup: str = SETUP) -> list[Doubt]:
    text = PROGRAM.replace("DEFAULT", default)
    before = text.replace("IMPORT", "from apex import amp").replace("SETUP", setup.replace("LEVEL", level))
    on = "args.fp16" if level.startswith('"') else 'args.fp16 and args.level != "O0"'
    after = text.replace("IMPORT", "").replace("SETUP", f'scaler = torch.amp.GradScaler("cuda", enabled={on})')
    step = AFTER_STEP.replace("enabled=args.fp16", f"enabled={on}")
    found = doubts(before.replace("    STEP", STEP), after.replace("    STEP", step))
    return [d for d in found if d.code == "AMP531" and d.message.startswith("backbone")]


@pytest.mark.parametrize(
    ("level", "default", "verdict", "level_said"),
    [
        ('"O2"', "O1", "review", "freeze"),
        ("args.level", "O2", "review", "freeze"),
        ("args.level", "O1", "look", "level is not 'O1'"),
    ],
)
def test_the_flag_under_which_it_was_not_given_is_told(level: str, default: str, verdict: str, level_said: str) -> None:
    (doubt,) = said(level, default)
    assert doubt.verdict == verdict
    assert level_said in doubt.message
    assert "runs under autocast now where" in doubt.message


@pytest.mark.parametrize("level", ['"O1"', '"O2"', "args.level"])
def test_a_model_that_each_set_up_was_given_is_not(level: str) -> None:
    assert not said(level, setup=OF_ALL)


def test_nor_is_one_that_was_patched_with_all_the_rest() -> None:
    assert not said('"O1"')
