"""A backward that is not always followed by the step in sight: something else may step, and what only keeps an optimizer
does not."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import check_refused, found
from tests.rules.trained import PRELUDE

PROGRAM = """
class Step:
    def __init__(self, opt):
        self.opt = opt

    def backward_of(self, loss):
        with amp.scale_loss(loss, self.opt) as scaled_loss:
            scaled_loss.backward()

    def advance(self):
        self.opt.step()


class Restarts({base}):
    def __init__(self, opt):
        super().__init__(opt)


def first(step, loss):
    step.backward_of(loss)


def second(step):
    step.advance()


def main(model, optimizer, chosen):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    step = Step(optimizer)
    {more}
    for x, y in loader:
        optimizer.zero_grad()
        first(step, criterion(model(x), y))
        second(step)
    if chosen:
        first(step, criterion(model(x), y))
"""


@pytest.mark.parametrize("base", ["torch.optim.lr_scheduler._LRScheduler", "OwnScheduler", "ReduceLROnPlateau"])
def test_a_scheduler_that_hands_the_optimizer_to_its_base_does_not_step_it(base: str) -> None:
    head = "from project import OwnScheduler, ReduceLROnPlateau\n"
    result = rewrite(PRELUDE + head + PROGRAM.format(base=base, more="Restarts(optimizer)"))
    assert not found(result, "AMP216")
    assert result.after is not None
    assert "scaler.step(self.opt)" in result.after


@pytest.mark.parametrize(("base", "more"), [("Outside", "Restarts(optimizer)"), ("object", "elsewhere(optimizer)")])
def test_what_may_step_it_is_named(base: str, more: str) -> None:
    head = "from project import Outside, elsewhere\n"
    result = check_refused(PRELUDE + head + PROGRAM.format(base=base, more=more), "AMP216")
    (told,) = found(result, "AMP216")
    line = "super().__init__(opt)" if base == "Outside" else "elsewhere(optimizer)"
    at = next(
        i for i, row in enumerate((PRELUDE + head + PROGRAM.format(base=base, more=more)).split("\n"), 0) if line in row
    )
    assert f"train.py:{at}" in told.message
    assert "are not seen to follow each other" in told.message
