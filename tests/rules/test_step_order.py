"""A step follows a backward, and only one step does: GradScaler refuses or miscounts any other. What cannot be refused
with certainty, a batch that may be skipped, is said; what cannot happen is not."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import apex, check_refused, found
from tests.rules.trained import PRELUDE, check_trained, run

SCALE = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"
BACKWARD = f"loss = criterion(model(x), y)\noptimizer.zero_grad()\n{SCALE}"

AGAIN = {
    "twice in a row": BACKWARD + "optimizer.step()\noptimizer.step()",
    "an alias as well": "other = optimizer\n" + BACKWARD + "optimizer.step()\nother.step()",
    "three times": BACKWARD + "for _ in range(3):\n    optimizer.step()",
    "as long as a count is small": BACKWARD + "n = 0\nwhile n < 3:\n    optimizer.step()\n    n += 1",
    "through a helper": "def finish(o):\n    o.step()\n\n" + BACKWARD + "for _ in range(3):\n    finish(optimizer)",
    "through a list": "bag = [optimizer]\n" + BACKWARD + "bag[0].step()\noptimizer.step()",
}


@pytest.mark.parametrize("loop", AGAIN.values(), ids=AGAIN)
def test_one_backward_is_stepped_with_once(loop: str) -> None:
    check_refused(apex(loop), "AMP307")


ONCE = {
    "each in a branch": BACKWARD + "if x.sum() > 0:\n    optimizer.step()\nelse:\n    optimizer.step()",
    "under opposite conditions": BACKWARD + "if warm:\n    optimizer.step()\nif not warm:\n    optimizer.step()",
    "by a number and its opposite": BACKWARD + "if n == 0:\n    optimizer.step()\nif n != 0:\n    optimizer.step()",
    "each after a backward": BACKWARD + "optimizer.step()\n" + BACKWARD + "optimizer.step()",
    "after each of several": "for _ in range(3):\n" + indent(BACKWARD + "optimizer.step()", "    "),
    "under the backward's own condition": f"loss = criterion(model(x), y)\nif ready:\n{indent(SCALE, '    ')}"
    "if ready:\n    optimizer.step()\n    optimizer.zero_grad()",
    "unless the batch is skipped": "loss = criterion(model(x), y)\noptimizer.zero_grad()\n"
    f"if not torch.isfinite(loss):\n    continue\n{SCALE}optimizer.step()",
    "unless the program ends": "import sys\nloss = criterion(model(x), y)\noptimizer.zero_grad()\n"
    f"if torch.isfinite(loss):\n{indent(SCALE, '    ')}else:\n    sys.exit(1)\noptimizer.step()",
    "whichever loss it is": "optimizer.zero_grad()\nloss = criterion(model(x), y)\n"
    f"if a:\n{indent(SCALE, '    ')}else:\n    loss = loss * 2\n{indent(SCALE, '    ')}optimizer.step()",
    "with zeros left": "loss = criterion(model(x), y)\noptimizer.zero_grad(set_to_none=False)\n"
    f"if torch.isfinite(loss):\n{indent(SCALE, '    ')}optimizer.step()",
    "of a model that trains": "optimizer.zero_grad()\nloss = criterion(model(x), y)\n"
    f"if model.training:\n{indent(SCALE, '    ')}optimizer.step()",
    "over micro-batches": "optimizer.zero_grad()\nfor part in x:\n"
    f"    loss = criterion(model(part), y)\n{indent(SCALE, '    ')}optimizer.step()",
    "counted": f"count = 0\nfor part in x:\n    loss = criterion(model(part), y)\n    if torch.isfinite(loss):\n"
    f"{indent(SCALE, '        ')}        count += 1\nif count > 0:\n    optimizer.step()\n    optimizer.zero_grad()",
}


@pytest.mark.parametrize("loop", ONCE.values(), ids=ONCE)
def test_a_step_with_a_backward_on_every_path_is_no_news(loop: str) -> None:
    result = rewrite(apex(loop))
    assert result.status == "migrated", result.findings
    assert not found(result, "AMP219")
    assert not found(result, "AMP232")


START = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
SKIPPING = {
    "a count that may be none": "count = 0\noptimizer.zero_grad()\nfor x, y in loader:\n    loss = criterion(model(x), y)\n"
    f"    if torch.isnan(loss).any():\n        print('skipped')\n    else:\n{indent(SCALE, '        ')}        count += 1\n"
    "    if count % 4 == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n",
    "a loss that is not finite": "for x, y in loader:\n    loss = criterion(model(x), y)\n    optimizer.zero_grad()\n"
    f"    if torch.isfinite(loss):\n{indent(SCALE, '        ')}    optimizer.step()\n",
    "all micro-batches": "for x, y in loader:\n    optimizer.zero_grad()\n    for part, target in zip(x, y):\n"
    "        loss = criterion(model(part), target)\n        if torch.isnan(loss):\n            continue\n"
    f"{indent(SCALE, '        ')}    optimizer.step()\n",
    "a last step after the loop": "for i, (x, y) in enumerate(loader):\n    loss = criterion(model(x), y)\n"
    f"{indent(SCALE, '    ')}    if (i + 1) % 3 == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n"
    "optimizer.step()\n",
    "in a helper": "def finish(which):\n    which.step()\n\n\n"
    "for x, y in loader:\n    loss = criterion(model(x), y)\n    optimizer.zero_grad()\n"
    f"    if torch.isfinite(loss):\n{indent(SCALE, '        ')}    finish(optimizer)\n",
}


def _without_numbers(loop: str) -> str:
    loader = "[(x * float('nan'), y) for x, y in loader]"
    return PRELUDE + START + loop.replace("for x, y in loader", f"for x, y in {loader}")


@pytest.mark.parametrize("loop", SKIPPING.values(), ids=SKIPPING)
def test_a_step_without_a_backward_on_some_path_is_taken_where_there_is_a_gradient(loop: str) -> None:
    """With such a batch, too, the migrated program runs; without one it trains as the original does."""
    result = rewrite(_without_numbers(loop), device="cpu")
    (finding,) = found(result, "AMP219")
    assert finding.review == "look"
    assert "momentum" in finding.message
    assert result.after is not None
    run(result.after)
    check_trained(f"{START}{loop}seen.append(loss.item())\n")


CLIPPED = (
    "for x, y in loader:\n    loss = criterion(model(x), y)\n    optimizer.zero_grad()\n"
    f"    if torch.isfinite(loss):\n{indent(SCALE, '        ')}"
    "    clip_grad_norm_(amp.master_params(optimizer), 1.0)\n    optimizer.step()\n"
)


def test_where_more_than_the_step_would_have_to_wait_it_is_told() -> None:
    """And what is told is true: with such a batch the migrated program raises, as the finding says."""
    result = rewrite(_without_numbers(CLIPPED), device="cpu")
    (finding,) = found(result, "AMP219")
    assert finding.review == "review"
    assert "leave the step out" in finding.message
    assert result.after is not None
    with pytest.raises(AssertionError, match=r"_scale is None|No inf checks"):
        run(result.after)


CLIP = "clip_grad_norm_(amp.master_params(optimizer), 1.0)"
TWICE = (
    "for i, (x, y) in enumerate(loader):\n    optimizer.zero_grad()\n    loss = criterion(model(x), y)\n"
    f"{indent(SCALE, '    ')}    if i % 2 == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n"
    "    optimizer.step()\n"
)


def test_a_step_right_after_another_and_zero_grad_is_taken_where_there_is_a_gradient() -> None:
    (finding,) = found(rewrite(PRELUDE + START + TWICE, device="cpu"), "AMP219")
    assert finding.review == "look"
    assert "which clears the gradients" in finding.message
    after = check_trained(f"{START}{TWICE}seen.append(loss.item())\n")
    assert after.count("p.grad is not None") == 1


def test_a_step_that_raises_wherever_another_was_taken_is_refused() -> None:
    loop = TWICE.replace("    optimizer.step()\n", "    given = optimizer.step()\n")
    result = rewrite(PRELUDE + START + loop, device="cpu")
    assert result.after is None
    (finding,) = found(result, "AMP219")
    assert finding.status == "manual"
    assert "an else of the condition" in finding.message


def test_a_backward_that_may_come_between_two_steps_is_no_second_step() -> None:
    loop = (
        f"for x, y in loader:\n    loss = criterion(model(x), y)\n    optimizer.zero_grad()\n{indent(SCALE, '    ')}"
        f"    {CLIP}\n    optimizer.step()\n    optimizer.zero_grad()\n    loss = criterion(model(x), y)\n"
        f"    if torch.isfinite(loss):\n{indent(SCALE, '        ')}    {CLIP}\n    optimizer.step()\n"
    )
    result = rewrite(PRELUDE + START + loop, device="cpu")
    assert [f.review for f in found(result, "AMP219")] == ["review"]


def test_a_step_with_gradients_that_are_still_there_is_told() -> None:
    loop = f"loss = criterion(model(x), y)\nif torch.isfinite(loss):\n{indent(SCALE, '    ')}optimizer.step()"
    (finding,) = found(rewrite(apex(loop)), "AMP219")
    assert "still there" in finding.message


TRAINER = """
    import torch
    from abc import abstractmethod
    from apex import amp


    class Trainer:
        def fit(self, loader):
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
            for x in loader:
                self.turn(x)
                self.optimizer.step()
                self.optimizer.zero_grad()

        {decorated}
        def turn(self, x):
            {body}


    class Own(Trainer):
        def __init__(self, model):
            self.model = model
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def turn(self, x):
            loss = self.model(x).sum()
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
    """


@pytest.mark.parametrize(
    ("decorated", "body", "idle"),
    [
        ("@abstractmethod", "pass", False),
        ("# to be written", "raise NotImplementedError", False),
        ("# nothing by itself", "pass", True),
    ],
)
def test_a_method_that_others_are_written_in_place_of_is_on_no_path(decorated: str, body: str, idle: bool) -> None:
    result = rewrite(TRAINER.format(decorated=decorated, body=body))
    assert result.status == "migrated", result.findings
    assert [bool(found(result, "AMP219")), bool(found(result, "AMP232"))] == [idle, False]
