"""Causes that `make metamorphic` found: what a program says in other words is said of it too."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import check_manual, rewrite
from tests.rules.trained import PRELUDE, check_trained

SET_UP = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
FORWARD = "    loss = criterion(model(x), y)\n    optimizer.zero_grad()\n"
SCALED = "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
CLIP = "    seen.append(float(clip_grad_norm_(model.parameters(), 0.5)))\n"


def loop(*parts: str) -> str:
    return SET_UP + "for x, y in loader:\n" + FORWARD + "".join(parts)


def test_a_backward_kept_as_a_value_is_scaled_also_beside_a_plain_one() -> None:
    kept = """
        if use_amp:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                go = scaled_loss.backward
                go()
        else:
            loss.backward()
    """
    body = textwrap.indent(textwrap.dedent(kept).lstrip("\n"), "    ")
    result = rewrite(PRELUDE + "use_amp = bool(seen) or True\n" + loop(body, "    optimizer.step()\n"))
    assert not [f for f in result.findings if f.status == "manual" or f.code == "AMP214"]
    assert result.after is not None
    assert "scaler.step(optimizer)\n    scaler.update()" in result.after


@pytest.mark.parametrize("value", ["1 if len(seen) < 3 else 0", "seen or None", "len(seen) * 0 + 1", '"yes"'])
@pytest.mark.parametrize("hold", ["fp16 = {}", "cfg.fp16 = {}"])
def test_a_switch_given_what_is_no_bool_is_made_one(value: str, hold: str) -> None:
    name = hold.split(" ")[0]
    lines = ["from types import SimpleNamespace", "cfg = SimpleNamespace()", hold.format(value), f"if {name}:"]
    switch = "\n".join([*lines, f"    {SET_UP}"])
    backward = f"    if {name}:\n" + textwrap.indent(SCALED, "    ") + "    else:\n        loss.backward()\n"
    text = switch + "for x, y in loader:\n" + FORWARD + backward + "    optimizer.step()\n"
    result = rewrite(PRELUDE + text)
    assert result.after is not None, result.findings
    assert "enabled=bool(" in result.after


def test_a_real_bool_stays_as_it_is() -> None:
    lines = ["fp16 = len(seen) < 3", "if fp16:", f"    {SET_UP}"]
    backward = "    if fp16:\n" + textwrap.indent(SCALED, "    ") + "    else:\n        loss.backward()\n"
    result = rewrite(
        PRELUDE + "\n".join(lines) + "for x, y in loader:\n" + FORWARD + backward + "    optimizer.step()\n"
    )
    assert result.after is not None, result.findings
    assert "enabled=fp16" in result.after


def test_gradients_are_unscaled_for_each_optimizer_that_a_comprehension_steps() -> None:
    text = "optimizers = [optimizer]\n" + loop(SCALED, CLIP, "    [member.step() for member in optimizers]\n")
    after = check_trained(text)
    assert "    for member in optimizers:\n        scaler.unscale_(member)\n" in after


def test_a_comprehension_that_leaves_some_optimizers_out_is_refused_where_gradients_are_read() -> None:
    text = "optimizers = [optimizer]\n" + loop(SCALED, CLIP, "    [member.step() for member in optimizers if member]\n")
    check_manual(PRELUDE + text, "AMP216")


def test_an_object_that_is_made_with_the_scaler_is_not_asked_for_it_before() -> None:
    text = """
        class Updater:
            def __init__(self, optimizer):
                self.optimizer = optimizer

            def update(self):
                self.optimizer.step()


        def train(model, optimizer, amp):
            updater = Updater(optimizer)
            for x, y in loader:
                loss = criterion(model(x), y)
                optimizer.zero_grad()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                seen.append(float(clip_grad_norm_(model.parameters(), 0.5)))
                updater.update()


        def main():
            prepared, stepped = amp.initialize(model, optimizer, opt_level="O1")
            train(prepared, stepped, amp)


        main()
    """
    after = check_trained(text)
    assert "updater = Updater(optimizer, scaler)" in after


@pytest.mark.parametrize(
    ("made", "step", "unscaled"),
    [
        ("opt = optimizer", "opt.step()", "scaler.unscale_(optimizer)"),
        ("pair = (model, optimizer)", "pair[1].step()", "scaler.unscale_(optimizer)"),
        ("members = [optimizer]", "[o.step() for o in members]", "for o in [optimizer]:\n        scaler.unscale_(o)"),
        ("held = Holder()\n    held.opt = optimizer", "held.opt.step()", "scaler.unscale_(optimizer)"),
    ],
)
def test_gradients_are_unscaled_by_a_name_that_is_there_already(made: str, step: str, unscaled: str) -> None:
    """The step's own name for the optimizer is made below the clip."""
    text = f"""
class Holder:
    pass


def train_step(model, optimizer, x, y):
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(float(clip_grad_norm_(model.parameters(), 0.5)))
    {made}
    {step}


{SET_UP}
for x, y in loader:
    train_step(model, optimizer, x, y)
"""
    assert unscaled in check_trained(text)
