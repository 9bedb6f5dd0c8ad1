"""Readers of gradients in other functions than the step: unscaled first on every path, or refused."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import apex, check_refused

SPREAD = """
import torch
from apex import amp

from project import build, criterion, loader

{functions}
model, optimizer = build()
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

for x, y in loader:
    loss = criterion(model(x), y)
{loop}"""
SCALE = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"
CLIP_MASTERS = "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)\n"


@pytest.mark.parametrize(
    ("functions", "loop"),
    [
        ({"update": "optimizer.step()\n"}, SCALE + CLIP_MASTERS + "update(model, optimizer, loss)\n"),
        ({"clip": CLIP_MASTERS}, SCALE + "clip(model, optimizer, loss)\noptimizer.step()\n"),
        (
            {"clip": CLIP_MASTERS, "update": "optimizer.step()\n"},
            SCALE + "clip(model, optimizer, loss)\nupdate(model, optimizer, loss)\n",
        ),
        ({"update": CLIP_MASTERS + "optimizer.step()\n"}, SCALE + "update(model, optimizer, loss)\n"),
        ({"backward": SCALE + CLIP_MASTERS}, "backward(model, optimizer, loss)\noptimizer.step()\n"),
        (
            {"backward": SCALE + CLIP_MASTERS, "update": "optimizer.step()\n"},
            "backward(model, optimizer, loss)\nupdate(model, optimizer, loss)\n",
        ),
        ({"everything": SCALE + CLIP_MASTERS + "optimizer.step()\n"}, "everything(model, optimizer, loss)\n"),
    ],
    ids=["step", "clip", "clip and step", "clip with step", "backward with clip", "all apart", "all together"],
)
def test_a_clip_is_unscaled_whichever_functions_hold_it_and_the_step(functions: dict[str, str], loop: str) -> None:
    defined = "".join(
        f"\ndef {name}(model, optimizer, loss):\n{textwrap.indent(body, '    ')}\n" for name, body in functions.items()
    )
    result = rewrite(SPREAD.format(functions=defined, loop=textwrap.indent(loop, "    ")))
    if result.after is None:
        assert [f for f in result.findings if f.code == "AMP307"]
    else:
        assert result.after.count("unscale_(optimizer)") == 1


def test_gradients_logged_after_every_batch_of_an_accumulation_are_refused() -> None:
    loop = (
        "loss = criterion(model(x), y)\n" + SCALE + "if i % 4 == 3:\n    optimizer.step()\n    optimizer.zero_grad()\n"
        "if i % 100 == 0:\n    log_grad_norm(model)\n"
    )
    check_refused(apex(loop, imports="from apex import amp\nfrom project import i, log_grad_norm"), "AMP307")
