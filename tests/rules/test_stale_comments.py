"""Comments that only said when Apex wanted something done."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """\
import torch
from apex import amp
from project import build, loader, options

NOTE = \"\"\"
# kept (should be after apex fp16 initialization)
\"\"\"
model, optimizer = build()
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

{comment}
if options.parallel:
    model = torch.nn.DataParallel(model)
for x in loader:
    with amp.scale_loss(model(x), optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("# multi-gpu training (should be after apex fp16 initialization)", "# multi-gpu training"),
        (
            "# Distributed (must be done after Apex initialization); one process a GPU",
            "# Distributed; one process a GPU",
        ),
        ("x = 1  # parallel (should be after apex init)", "x = 1  # parallel"),
        ("# multi-gpu training (should be after the warm-up)", "# multi-gpu training (should be after the warm-up)"),
    ],
)
def test_what_apex_wanted_is_said_no_more(comment: str, left: str) -> None:
    after = rewrite(PROGRAM.format(comment=comment)).after
    assert after is not None
    assert f"\n\n{left}\nif options.parallel:\n" in after
    assert "# kept (should be after apex fp16 initialization)" in after
    assert rewrite(after).after is None


def test_it_stays_where_apex_stays() -> None:
    text = PROGRAM.format(comment="# multi-gpu training (should be after apex fp16 initialization)")
    assert rewrite(text.replace("optimizer.step()", "amp.unknown()")).after is None


ABOVE = """\
import torch
from apex import amp


def train(model, optimizer, loader):
    {comment}
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x in loader:
        optimizer.zero_grad()
        with amp.scale_loss(model(x).sum(), optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("comment", "stays"),
    [
        ("# Amp accepts numbers or texts for these,\n    # as a command line gives them", False),
        ("# mixed precision by amp, from here on", True),
    ],
)
def test_what_only_initialize_accepts_is_said_no_more_where_a_scaler_is_made(comment: str, stays: bool) -> None:
    after = rewrite(ABOVE.format(comment=comment)).after
    assert after is not None
    assert (f"    {comment}\n    scaler = torch.amp.GradScaler" in after) is stays
    assert ("# " in after) is stays
