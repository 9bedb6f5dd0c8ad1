"""A step in other words than `optimizer.step()`: kept as a value, asked for by its name, in a lambda."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import APEX_LOOP, INITIALIZE, apex, found
from tests.rules.trained import check_trained

START = '\nmodel, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
LOOP = """
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(amp.master_params(optimizer), 0.05).item())
"""
SPOKEN = {
    "by its name": START + LOOP + '    getattr(optimizer, "step")()\n',
    "kept right before": START + LOOP + "    go = optimizer.step\n    go()\n",
    "kept by its name": START + LOOP + '    go = getattr(optimizer, "step")\n    turn = 3\n    go()\n',
    "in a branch below": START
    + LOOP
    + "    go = optimizer.step\n    if torch.cuda.is_available():\n        torch.cuda.synchronize()\n        go()\n"
    + "    else:\n        go()\n",
    "in a context below": START
    + LOOP
    + "    go = optimizer.step\n    with torch.no_grad():\n        print(1)\n        go()\n",
    "in a lambda": START + "go = lambda: optimizer.step()\n" + LOOP + "    go()\n",
    "in a lambda, by its name": START + 'go = lambda: getattr(optimizer, "step")()\n' + LOOP + "    go()\n",
    "kept again and again": START
    + LOOP
    + "    go = optimizer.step\n    go()\n"
    + LOOP
    + "    go = optimizer.step\n    go()\n",
}


@pytest.mark.parametrize("program", SPOKEN.values(), ids=SPOKEN)
def test_a_step_in_other_words_goes_through_the_scaler(program: str) -> None:
    text = check_trained(program)
    assert text.count("scaler.step(optimizer)") == max(program.count("go()"), 1)
    assert "go" not in text
    assert '"step"' not in text


BEFORE_THE_STEP = APEX_LOOP.replace("optimizer.step()\n", "")
KEPT = {
    "before the loop": (f"{INITIALIZE}\ngo = optimizer.step", "go()"),
    "before the backward": (f"{INITIALIZE}", ""),
    "with something run between": (INITIALIZE, "go = optimizer.step\nmodel(x)\ngo()"),
    "in a branch, with something run before": (
        INITIALIZE,
        "go = optimizer.step\nif x is not None:\n    print_state(x)\n    go()",
    ),
    "in a branch that is asked for by something run": (INITIALIZE, "go = optimizer.step\nif ready(x):\n    go()"),
    "in a loop below": (INITIALIZE, "go = optimizer.step\nfor _ in range(2):\n    go()\n    model(x)"),
    "in a context of the program's": (INITIALIZE, "go = optimizer.step\nwith timed():\n    go()"),
    "and the optimizer renamed": (INITIALIZE, "go = optimizer.step\noptimizer = other\ngo()"),
    "or another": (INITIALIZE, "go = optimizer.step\nif x.sum() > 0:\n    go = print\ngo()"),
    "and handed on": (INITIALIZE, "go = optimizer.step\nprint(go)\ngo()"),
    "called elsewhere": (INITIALIZE, "go = optimizer.step\ndef run():\n    go()\nrun()"),
    "in a lambda that is handed on": (f"{INITIALIZE}\ngo = lambda: optimizer.step()\nprint(go)", "go()"),
    "in a lambda with an argument": (f"{INITIALIZE}\ngo = lambda o: o.step()", "go(optimizer)"),
    "in a lambda that is called elsewhere": (
        f"{INITIALIZE}\ngo = lambda: optimizer.step()\ndef run():\n    go()",
        "run()",
    ),
}


@pytest.mark.parametrize(("prepare", "step"), KEPT.values(), ids=KEPT)
def test_a_step_that_may_be_another_by_then_is_refused(prepare: str, step: str) -> None:
    """Apex puts another step in the optimizer's place after an overflow, for one call: one that is kept is not replaced."""
    loop = BEFORE_THE_STEP + step
    if not step:
        loop = "go = optimizer.step\n" + BEFORE_THE_STEP.strip() + "\ngo()"
    result = rewrite(apex(loop, prepare))
    assert result.after is None
    assert found(result, "AMP216")
