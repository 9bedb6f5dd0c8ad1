"""`try: amp.initialize(...)`, `except: scaler = GradScaler()`: the native side of a machine without Apex is not lost."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

HEAD = """
import torch
from torch import nn
try:
    from apex import amp
except ImportError:
    pass

def main(args, model, opt, loader):
    scaler = None
"""
SET_UP = """
    if args.amp:
        try:
            model, opt = amp.initialize(model, opt, opt_level="O1")
        except {caught}:
            scaler = {made}
"""
STEP = """
    for x in loader:
        if scaler is not None:
            with {region}:
                loss = model(x).sum()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
"""
APEX = """
        else:
            loss = model(x).sum()
            with amp.scale_loss(loss, opt) as scaled:
                scaled.backward()
            opt.step()
"""
NATIVE = """
        else:
            with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
                loss = model(x).sum()
            grad_scaler.scale(loss).backward()
            grad_scaler.step(opt)
            grad_scaler.update()
"""
IMPORT = "try:\n    from apex import amp\nexcept ImportError:\n    pass\n"


def program(set_up: str, rest: str, region: str = "torch.cuda.amp.autocast()") -> str:
    return HEAD + set_up + STEP.format(region=region).rstrip() + rest


@pytest.mark.parametrize("caught", ["Exception", "(ImportError, NameError)", "NameError"])
@pytest.mark.parametrize("made", ["torch.cuda.amp.GradScaler()", 'torch.amp.GradScaler("cuda")'])
def test_a_native_side_that_nothing_reaches_any_more(caught: str, made: str) -> None:
    before = program(SET_UP.format(caught=caught, made=made), APEX)
    after = program('\n    grad_scaler = torch.amp.GradScaler("cuda", enabled=args.amp)\n', NATIVE).replace(IMPORT, "")
    assert [v for _, v in told(doubts(before, after), "AMP133")] == ["refuse"]


def test_the_native_side_that_everybody_has_now() -> None:
    before = program(SET_UP.format(caught="Exception", made="torch.cuda.amp.GradScaler()"), APEX)
    after = program('\n    if args.amp:\n        scaler = torch.amp.GradScaler("cuda")\n', "\n").replace(IMPORT, "")
    assert not told(doubts(before, after), "AMP133")


@pytest.mark.parametrize("made", ["None", "None\n            pass", "print('no Apex')", "Scaler()"])
def test_a_handler_that_makes_no_scaler(made: str) -> None:
    before = program(SET_UP.format(caught="Exception", made=made), APEX)
    before = before.replace("scaler = None", "scaler = torch.cuda.amp.GradScaler() if args.native else None", 1)
    after = program('\n    grad_scaler = torch.amp.GradScaler("cuda", enabled=args.amp)\n', NATIVE).replace(IMPORT, "")
    assert not [d for d in doubts(before, after) if d.code == "AMP133" and "own GradScaler" in d.message]
