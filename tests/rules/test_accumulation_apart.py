"""Backward and step in functions of their own: how one follows the other stands in either."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import found

APART = """
import torch
from apex import amp


class Trainer:
    def __init__(self, model, every):
        self.turn, self.every = 0, every
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.model, self.optimizer = amp.initialize(model, self.optimizer, opt_level="O1")

    def backward(self, loss):
        {scale}

    def step(self, update=True):
        {step}
        self.turn += 1

    def train(self, loss):
        self.backward(loss)
        self.step()


trainer = Trainer(torch.nn.Linear(4, 2).cuda(), 4)
for _ in range(8):
    trainer.train(trainer.model(torch.randn(8, 4).cuda()).pow(2).mean())
"""
SCALE = "with amp.scale_loss(loss, self.optimizer) as scaled:\n            scaled.backward()"
SCALE_EACH = "for part in loss:\n            with amp.scale_loss(part, self.optimizer) as scaled:\n                scaled.backward()"
STEPPED = "self.optimizer.step()"
KEPT_BACK = "if (self.turn + 1) % self.every == 0:\n            self.optimizer.step()"
LEFT = "if (self.turn + 1) % 4:\n            self.turn += 1\n            return\n        self.optimizer.step()"


@pytest.mark.parametrize(
    ("scale", "step", "said"),
    [
        (SCALE, KEPT_BACK, True),
        (SCALE, LEFT, True),
        (SCALE_EACH, STEPPED, True),
        (SCALE, STEPPED, False),
        (SCALE, KEPT_BACK.replace("self.every", "1"), False),
        (SCALE, "if update:\n            self.optimizer.step()", False),
        (SCALE, "if torch.isfinite(self.turn):\n            self.optimizer.step()", False),
    ],
)
def test_backward_and_step_in_functions_that_a_third_one_calls(scale: str, step: str, said: bool) -> None:
    result = rewrite(APART.format(scale=scale, step=step))
    assert result.after is not None
    told = found(result, "AMP207")
    assert [f.message[:26] for f in told] == ["several backwards per step"] * said


def test_a_boundary_two_calls_below_is_found_too() -> None:
    source = APART.format(scale=SCALE, step=KEPT_BACK).replace(
        "        self.step()\n", "        self.finish()\n\n    def finish(self):\n        self.step()\n"
    )
    assert len(found(rewrite(source), "AMP207")) == 1
