"""Apex was given an optimizer that another object holds: a step of that object is none of the scaler's."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, rewrite

TRAINER = """
import torch
from apex import amp


class Trainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.model, INNER = amp.initialize(self.model, INNER, opt_level="O1")

    def train(self, loader):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            with amp.scale_loss(loss, INNER) as scaled_loss:
                scaled_loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            STEP
            self.optimizer.zero_grad()
"""


@pytest.mark.parametrize("inner", ["self.optimizer.optimizer", "self.optimizer._optimizer", 'self.optimizer["inner"]'])
def test_the_step_of_what_holds_the_optimizer_is_not_taken_for_its_own(inner: str) -> None:
    source = TRAINER.replace("INNER", inner).replace("STEP", "self.optimizer.step()")
    check_manual(source, "AMP216")


@pytest.mark.parametrize("inner", ["self.optimizer.optimizer", "self.optimizer._optimizer"])
def test_the_step_of_the_held_one_goes_through_the_scaler(inner: str) -> None:
    result = rewrite(TRAINER.replace("INNER", inner).replace("STEP", f"{inner}.step()"))
    assert f"self.scaler.unscale_({inner})" in str(result.after)
    assert f"self.scaler.step({inner})" in str(result.after)


def test_the_step_of_the_very_object() -> None:
    result = rewrite(TRAINER.replace("INNER", "self.optimizer").replace("STEP", "self.optimizer.step()"))
    assert "self.scaler.step(self.optimizer)" in str(result.after)
