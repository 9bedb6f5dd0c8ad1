"""A static loss scale is held by some update, and one that moved is not held (AMP240)."""

from __future__ import annotations

import pytest

from amp_migrate.audit import Doubt
from tests.audit.helpers import doubts, program

HEAD = """
import argparse
import torch
{imports}
from data import loader, model, criterion
parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=0)
args = parser.parse_args()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
"""
OLD = "    optimizer.backward(loss)\n    optimizer.step()\n"
CURRENT = "    with amp.scale_loss(loss, optimizer) as scaled:\n        scaled.backward()\n    optimizer.step()\n"


def said(setup: str, native: str, update: str) -> list[str]:
    return [d.message for d in refused(setup, native, update)]


def refused(setup: str, native: str, update: str) -> list[Doubt]:
    old = "FP16" in setup
    imports = "from apex.fp16_utils import FP16_Optimizer" if old else "from apex import amp"
    before = program(HEAD).format(imports=imports) + program(setup) + "\n" + program(LOOP) + (OLD if old else CURRENT)
    after = program(HEAD).format(imports="") + program(native) + program(LOOP)
    after += f"    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update({update})\n"
    return [d for d in doubts(before, after) if d.code == "AMP240" and d.verdict == "refuse"]


WRAP = "optimizer = FP16_Optimizer(optimizer, {})"
SETUP = "model, optimizer = amp.initialize(model, optimizer, opt_level='O1'{})"
CHOICE = """
if args.scale == 0:
    optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
else:
    optimizer = FP16_Optimizer(optimizer, static_loss_scale=args.scale)
"""
STATE = "from apex.amp._amp_state import _amp_state\n"
SCALER = "scaler = torch.amp.GradScaler('cuda')\n"
HELD = "hold = None if args.scale == 0 else float(args.scale)\n"


@pytest.mark.parametrize(
    ("setup", "native", "update"),
    [
        (WRAP.format("static_loss_scale=128"), "", "128.0"),
        (WRAP.format("static_loss_scale=2 * 64"), "", "128.0"),
        (WRAP.format("128.0"), "hold = 2.0**7\n", "hold"),
        (WRAP.format("static_loss_scale=args.scale"), "", "args.scale"),
        (WRAP.format("static_loss_scale=1.0"), "", ""),
        (WRAP.format("verbose=False"), "", ""),  # nothing asked is 1.0
        (WRAP.format("dynamic_loss_scale=True"), "", ""),
        (CHOICE, HELD, "hold"),
        (SETUP.format(""), "", ""),
        (SETUP.format(", loss_scale='128'"), "", "128.0"),
        (SETUP.format(", loss_scale='dynamic'"), "hold = None\n", "hold"),
        (SETUP.format(", loss_scale=args.scale"), HELD, "hold"),
        (SETUP.format(", loss_scale=unseen()"), "", ""),
        (SETUP.format(", loss_scale=twice(args.scale)"), "", ""),
        (STATE + SETUP.format("") + "\n_amp_state.loss_scalers[0]._loss_scale = 128.0", "", "128.0"),
        ("pair = (model, optimizer)\nmodel, optimizer = amp.initialize(*pair, opt_level='O1')", "", "128.0"),
        (SETUP.format(", min_loss_scale=8.0, max_loss_scale=8.0"), "", "8.0"),
    ],
)
def test_what_is_right(setup: str, native: str, update: str) -> None:
    assert said(setup, SCALER + native, update) == []


@pytest.mark.parametrize(
    ("setup", "native", "update", "message"),
    [
        (WRAP.format("static_loss_scale=128"), "", "", "would not be held"),
        (WRAP.format("static_loss_scale=128"), "", "64.0", "would not be held"),
        (WRAP.format("static_loss_scale=args.scale"), "hold = None\n", "hold", "would not be held"),
        (WRAP.format("static_loss_scale=128"), "scales.update(128.0)\n", "", "would not be held"),
        (WRAP.format("1.0, True"), "", "128.0", "moved"),
        (CHOICE, "hold = None\n", "hold", "the loss scale args.scale of FP16_Optimizer"),
        (CHOICE, "", "args.scale", "moved"),
        (SETUP.format(", loss_scale=128.0"), "", "", "would not be held"),
        (SETUP.format(""), "", "128.0", "moved"),
    ],
)
def test_what_is_refused(setup: str, native: str, update: str, message: str) -> None:
    (told,) = refused(setup, SCALER + native, update)
    assert message in told.message
    assert told.construct == "scaler.update"


def test_a_native_side_that_the_program_has_is_told_where_it_lets_the_scale_move() -> None:
    both = """
        import torch
        {imports}
        from data import loader, model, criterion, args

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        {apex}
        scaler = torch.amp.GradScaler("cuda", enabled=args.native)
        for x, y in loader:
            with torch.autocast("cuda", enabled=args.native):
                loss = criterion(model(x), y)
            optimizer.zero_grad()
            {backward}
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """
    setup = "if args.apex:\n            model, optimizer = amp.initialize(model, optimizer, opt_level='O1', loss_scale=128.0)"
    old = (
        "if args.apex:\n                with amp.scale_loss(loss, optimizer) as s:\n                    s.backward()\n"
    )
    old += "                optimizer.step()\n            else:"
    before = program(both.format(imports="from apex import amp", apex=setup, backward=old))
    after = program(both.format(imports="", apex="", backward="if True:"))
    (told,) = [d for d in doubts(before, after) if d.code == "AMP240"]
    assert (told.verdict, told.construct) == ("look", "loss_scale")
    assert "is not held on the native side, which stays" in told.message
