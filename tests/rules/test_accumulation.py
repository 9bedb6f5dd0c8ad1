"""Several backwards before one step: the scale is counted differently now, which is said."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import APEX_LOOP, apex, found

BACKWARD = (
    "loss = criterion(model(x), y)\nwith amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"
)
STEP = "optimizer.step()\noptimizer.zero_grad()"


@pytest.mark.parametrize(
    "loop",
    [
        f"{BACKWARD}if i % 4 == 3:\n    optimizer.step()\n    optimizer.zero_grad()",
        f"{BACKWARD}if is_boundary(i):\n    optimizer.step()\n    optimizer.zero_grad()",
        f"{BACKWARD}if GRAD_STEP:\n    optimizer.step()\n    optimizer.zero_grad()",
        f"{BACKWARD}if accumulated == steps:\n    optimizer.step()\n    optimizer.zero_grad()",
        f"for part in x:\n    {BACKWARD.strip().replace(chr(10), chr(10) + '    ')}\n{STEP}",
    ],
)
def test_growth_is_counted_per_step_now_which_is_announced(loop: str) -> None:
    (finding,) = found(rewrite(apex(loop)), "AMP207")
    assert finding.review == "look"
    assert "growth_interval" in finding.message


@pytest.mark.parametrize("loop", [APEX_LOOP, f"{BACKWARD}if torch.isfinite(loss):\n    optimizer.step()"])
def test_one_backward_per_step_changes_nothing(loop: str) -> None:
    assert not found(rewrite(apex(loop)), "AMP207")


def test_delay_unscale_says_it_already() -> None:
    loop = (
        BACKWARD.replace("optimizer)", "optimizer, delay_unscale=i % 4 != 3)") + "if i % 4 == 3:\n    optimizer.step()"
    )
    result = rewrite(apex(loop))
    assert found(result, "AMP204")
    assert not found(result, "AMP207")


def test_a_branch_that_does_not_accumulate_is_not_meant() -> None:
    once, often = (
        BACKWARD.replace("\n", "\n    ").strip() + text
        for text in ("\n    optimizer.step()", "\n    if i % 4 == 3:\n        optimizer.step()")
    )
    result = rewrite(apex(f"if steps > 1:\n    {often}\nelse:\n    {once}"))
    assert len(found(result, "AMP207")) == 1


@pytest.mark.parametrize("suite", ["continue", "print(i)\n    continue"])
def test_growth_is_announced_where_continue_leaves_the_step_out(suite: str) -> None:
    scaled = "loss = criterion(model(x), y)\nwith amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"
    loop = f"{scaled}if (i + 1) % 4 != 0:\n    {suite}\noptimizer.step()\noptimizer.zero_grad()"
    assert found(rewrite(apex(loop)), "AMP207")


def test_a_continue_on_a_bad_loss_is_no_accumulation() -> None:
    scaled = "loss = criterion(model(x), y)\nwith amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\n"
    assert not found(rewrite(apex(f"{scaled}if torch.isnan(loss):\n    continue\noptimizer.step()")), "AMP207")


def test_a_continue_before_a_scaled_backward_leaves_both_out() -> None:
    loop = "if i % 4 == 1:\n    continue\nloss = criterion(model(x), y)\nif torch.isfinite(loss):\n"
    loop += "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\noptimizer.step()"
    assert not found(rewrite(apex(loop)), "AMP207")


COUNTING = """
    import torch
    from apex import amp
    from project import build, loader, log


    class Distiller:
        def __init__(self):
            self.count = 0
            self.model, self.optimizer = build()
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

        def train(self, pieces):
            for x, y in loader:
                loss = self.model(x, y) / pieces
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.advance()
                if self.count % pieces == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()

        def advance(self):
            self.count += 1
            if self.count % 500 == 0:
                for p in self.model.parameters():
                    log(p.grad.std())


    Distiller().train(4)
    """


def test_a_reader_that_counts_the_micro_batches_is_not_moved_to_the_step() -> None:
    result = rewrite(COUNTING)
    assert result.after is None
    (finding,) = found(result, "AMP307")
    assert finding.status == "manual"
    assert "counts count, which decides on the step" in finding.message
