"""Two objects of one class hold an optimizer each: which of them a field is, is told by how its object was made."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite
from tests.rules.trained import check_trained

PROGRAM = """
other = build()
second = torch.optim.SGD(other.parameters(), lr=0.1)

class Updater:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def mine(self):
        return self.optimizer

    def get(self):
        return self.optimizer

    def update(self):
        self.finish()

    def finish(self):
        self.optimizer.step()

    def __call__(self):
        self.finish()

class State:
    pass

[model, other], [optimizer, second] = amp.initialize([model, other], [optimizer, second], opt_level="O1")
{prepare}
for x, y in loader:
    optimizer.zero_grad()
    second.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    loss = criterion(other(x), y)
    with amp.scale_loss(loss, second) as scaled_loss:
        scaled_loss.backward()
    seen.append(clip_grad_norm_(other.parameters(), 0.05).item())
    {one}
    {two}
"""
MADE = "one = Updater(optimizer)\ntwo = Updater(second)"
PUT = "one = State()\ntwo = State()"
STEPS = {
    "a field": (MADE, "{}.optimizer.step()"),
    "a property": (MADE, "{}.mine.step()"),
    "a getter": (MADE, "{}.get().step()"),
    "put there": (PUT + "\none.optimizer = optimizer\ntwo.optimizer = second", "{}.optimizer.step()"),
}


@pytest.mark.parametrize(("prepare", "step"), STEPS.values(), ids=STEPS)
def test_the_optimizers_of_two_objects_are_told_apart(prepare: str, step: str) -> None:
    text = check_trained(PROGRAM.format(prepare=prepare, one=step.format("one"), two=step.format("two")))
    assert text.partition("for x, y in loader")[2].count("scaler.update()") == 1


TURNS = """
other = build()
second = torch.optim.SGD(other.parameters(), lr=0.1)

class Updater:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def update(self):
        self.finish()

    def finish(self):
        self.optimizer.step()

    def __call__(self):
        self.finish()

[model, other], [optimizer, second] = amp.initialize([model, other], [optimizer, second], opt_level="O1")
one = Updater(optimizer)
two = Updater({second})
{prepare}
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    one{call}()
    second.zero_grad()
    loss = criterion(other(x), y)
    with amp.scale_loss(loss, second) as scaled_loss:
        scaled_loss.backward()
    two{call}()
    seen.append(loss.item())
"""


@pytest.mark.parametrize("call", [".update", ".finish", ""])
def test_a_method_steps_the_optimizer_of_its_object(call: str) -> None:
    check_trained(TURNS.format(call=call, prepare="", second="second"))


@pytest.mark.parametrize("change", ["two.optimizer = optimizer", "setattr(two, 'optimizer', optimizer)", "one = two"])
def test_an_object_that_may_hold_another_is_not_told_apart(change: str) -> None:
    source = (
        "import torch\nfrom apex import amp\nfrom project import build, criterion, loader, model, optimizer, seen\n"
    )
    source += TURNS.format(call=".update", prepare=change, second="second")
    assert rewrite(source).after is None
