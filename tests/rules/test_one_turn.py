"""A loop that runs its body once repeats nothing: `for _ in range(1)`, `for optimizer in (optimizer,)`."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.rules.programs import APEX_LOOP, apex, check_refused
from tests.rules.trained import check_trained

START = '\nmodel, optimizer = amp.initialize(model, optimizer, opt_level="O1")\nfor x, y in loader:\n'
SCALED = """
loss = criterion(model(x), y)
optimizer.zero_grad()
with amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
"""
CLIP = "seen.append(clip_grad_norm_(amp.master_params(optimizer), 0.05).item())\n"


def once(header: str, body: str) -> str:
    return f"{header}\n" + indent(body, "    ")


WHOLE = SCALED + CLIP + "optimizer.step()\n"
BODIES = {
    "the step": SCALED + CLIP + once("for _ in range(1):", "optimizer.step()\n"),
    "clip and step": SCALED + once("for _ in range(0, 1):", CLIP + "optimizer.step()\n"),
    "the step of one of one": SCALED + CLIP + once("for each in [optimizer]:", "each.step()\n"),
    "the whole iteration": once("for optimizer in (optimizer,):", WHOLE),
    "the whole iteration, counted": once("for i, optimizer in enumerate([optimizer]):", WHOLE),
    "the whole iteration, left": once("for _ in range(1):", WHOLE + "if i < 0:\n    continue\nbreak\n"),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_one_turn_is_none_too_many(body: str) -> None:
    text = check_trained("i = 0" + START + indent(body, "    "))
    assert text.count("scaler.unscale_(optimizer)") == 1
    assert text.count("scaler.update()") == 1


def test_what_a_loop_of_one_gives_is_named_above_it() -> None:
    """Where no loss names the optimizer in the function that steps."""
    run = "def run(loss):\n    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
    body = "loss = criterion(model(x), y)\noptimizer.zero_grad()\nrun(loss)\n" + CLIP
    text = check_trained(run + START + indent(body + once("for each in [optimizer]:", "each.step()\n"), "    "))
    assert "scaler.unscale_(optimizer)" in text
    assert "scaler.step(each)" in text


@pytest.mark.parametrize(
    "turns", ["range(2)", "range(n)", "range(1, 3)", "[1, 2]", "[*many]", "many", "zip([1], [1, 2])"]
)
def test_more_turns_or_none_are_not_one(turns: str) -> None:
    loop = APEX_LOOP.replace("optimizer.step()", f"for _ in {turns}:\n    optimizer.step()")
    check_refused(apex(loop, imports="from apex import amp\nfrom options import many, n"), "AMP307")


@pytest.mark.parametrize(
    "around",
    [
        "for o in all_of_them:\n    for each in [o]:\n        each.step()\n",
        "for them in [all_of_them]:\n    for o in them:\n        o.step()\n",
    ],
)
def test_the_scale_is_updated_after_the_last_of_several_that_are_gone_through_one_by_one(around: str) -> None:
    made = "all_of_them = [torch.optim.SGD([p], lr=0.1) for p in model.parameters()]\n"
    made += 'model, all_of_them = amp.initialize(model, all_of_them, opt_level="O1")\nfor x, y in loader:\n'
    body = "loss = criterion(model(x), y)\nfor o in all_of_them:\n    o.zero_grad()\n"
    body += "with amp.scale_loss(loss, all_of_them) as scaled_loss:\n    scaled_loss.backward()\n"
    text = check_trained(made + indent(body + around + "seen.append(loss.item())\n", "    "))
    assert text.count("    scaler.update()\n    seen.append(loss.item())\n") == 1
