"""Clips to a bound times the loss scale: right of gradients that carry it, once."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of

BEFORE = """
import torch
from apex import amp
from data import loader, model, criterion
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")

def backpropagate(loss):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

for batches in loader:
    for x, y in batches:
        loss = criterion(model(x), y)
        backpropagate(loss)
    optimizer.step()
    optimizer.zero_grad()
"""
RIGHT = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())"


def after(clip: str, step: str = "") -> str:
    text = BEFORE.replace("from apex import amp\n", "")
    text = text.replace(
        'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")', "scaler = torch.amp.GradScaler('cuda')"
    )
    text = text.replace(
        "with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()",
        "scaler.scale(loss).backward()",
    )
    text = text.replace("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", clip)
    return text.replace("optimizer.step()", f"{step}scaler.step(optimizer)\n    scaler.update()")


def verdicts(clip: str, step: str = "", old_step: str = "") -> set[tuple[str, str]]:
    before = BEFORE.replace("    optimizer.step()", f"    {old_step}optimizer.step()")
    if old_step:
        before = before.replace("    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n\n", "\n")
    return {(d.code, d.verdict) for d in doubts(before, after(clip, step)) if d.code == "AMP231"}


@pytest.mark.parametrize(
    "clip",
    [
        RIGHT,
        "bound = scaler.get_scale() * 1.0\n    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=bound)",
        "scale = scaler.get_scale()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), (1.0 + 0.0) * scale)",
    ],
)
def test_the_bound_carries_the_scale_as_the_gradients_do(clip: str) -> None:
    assert not verdicts(clip)


@pytest.mark.parametrize(
    "clip",
    [
        RIGHT.replace(" * scaler.get_scale()", ""),
        RIGHT.replace(" * ", " / "),
        RIGHT.replace("get_scale()", "get_scale() * scaler.get_scale()"),
        f"scaler.unscale_(optimizer)\n    {RIGHT}",
        *(
            f"bound = {bound}\n    {RIGHT.replace('1.0 * scaler.get_scale()', 'bound')}"
            for bound in ("scaler.get_scale() * scaler.get_scale()", "1.0 / scaler.get_scale()", "1.0")
        ),
    ],
)
def test_a_bound_of_another_scale_is_refused(clip: str) -> None:
    assert verdicts(clip) == {("AMP231", "refuse")}


@pytest.mark.parametrize("scaled", [False, True])
def test_after_unscale_it_carries_no_scale(scaled: bool) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0{})\n    "
    step = "scaler.unscale_(optimizer)\n    " + clip.format(" * scaler.get_scale()" if scaled else "")
    assert verdicts("", step, clip.format("")) == ({("AMP231", "refuse")} if scaled else set())


def test_a_clip_without_it_is_not_excused_by_another_with_it() -> None:
    clip = f"{RIGHT}\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)"
    assert verdicts(clip) == {("AMP231", "refuse")}


OFF = "scaler = torch.amp.GradScaler('cuda', enabled=False)"


def test_a_scaler_of_a_file_that_another_sets_is_one_wherever_it_is_named() -> None:
    """`engine.scaler = ...`: the file itself scales by what was set, not by what stands there."""
    engine = "import torch\nscaler = None\n\ndef backward(loss, optimizer):\n    {}\n"
    train = "import torch\nimport engine\n{}from data import loader, model, criterion\n"
    train += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n{}\nfor x, y in loader:\n"
    train += (
        "    loss = criterion(model(x), y)\n    engine.backward(loss, optimizer)\n    {}\n    optimizer.zero_grad()\n"
    )
    apex = "from apex import amp\n"
    scaled = "from apex import amp\n    with amp.scale_loss(loss, optimizer) as scaled:\n        scaled.backward()"
    old = {
        "engine.py": engine.replace("scaler = None\n", "").format(scaled),
        "train.py": train.format(apex, "model, optimizer = amp.initialize(model, optimizer)", "optimizer.step()"),
    }
    step = "engine.scaler.step(optimizer)\n    engine.scaler.update()"
    new = {
        "engine.py": engine.replace("scaler = None", OFF).format("scaler.scale(loss).backward()"),
        "train.py": train.format("", "engine.scaler = torch.amp.GradScaler('cuda', enabled=loader.fp16)", step),
    }
    assert not [d for d in doubts_of(old, new) if d.code == "AMP231"]
