"""Branches that a name of the file with one constant value never lets run: two scalers that never meet."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, sides

BEFORE, AFTER = sides("""
    import torch
  - from apex import amp

    NATIVE = False

    def train(args, model, optimizer, loader, scaler):
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +     grad_scaler = torch.amp.GradScaler("cuda")
        for x in loader:
  -         loss = model(x).sum()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = model(x).sum()
            if args.fp16 and NATIVE:
                scaler.scale(loss).backward()
            else:
  -             with amp.scale_loss(loss, optimizer) as scaled:
  -                 scaled.backward()
  +             grad_scaler.scale(loss).backward()
  +         grad_scaler.unscale_(optimizer)
            if args.fp16 and NATIVE:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if args.fp16 and NATIVE:
                scaler.step(optimizer)
                scaler.update()
            else:
  -             optimizer.step()
  +             grad_scaler.step(optimizer)
  +         grad_scaler.update()
            optimizer.zero_grad()
    """)
SWITCHED = "    def switch():\n        global NATIVE\n        NATIVE = True\n\n    def train"


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ("", "", False),
        ("NATIVE = False", "NATIVE = True", True),
        ("    def train", SWITCHED, True),
        ("NATIVE = False", "NATIVE = False\n    NATIVE = torch.cuda.is_available()", True),
        ("NATIVE = False", "if len(__file__) > 9:\n        NATIVE = False", False),  # it is False, or not there
        ("NATIVE = False", "if len(__file__) > 9:\n        NATIVE = False\n    else:\n        NATIVE = True", True),
        ("loader, scaler)", "loader, scaler, NATIVE)", True),
    ],
)
def test_a_flag_of_the_file_that_never_changes(old: str, new: str, refused: bool) -> None:
    before, after = (t.replace(old, new) if old else t for t in (BEFORE, AFTER))
    found = [d for d in doubts(before, after) if d.verdict == "refuse"]
    assert bool(found) is refused
