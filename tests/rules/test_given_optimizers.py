"""The step of an optimizer that a call gives, or that a loop takes out of pairs."""

from __future__ import annotations

from textwrap import indent

import pytest

from tests.rules.helpers import rewrite
from tests.rules.programs import APEX_LOOP, INITIALIZE, apex, check_refused
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
HOLDER = """
class Holder:
    def __init__(self, optimizer):
        self.held = optimizer

    def get(self):
        return self.held

holder = Holder(optimizer)
"""

GIVEN = {
    "by a getter": START + HOLDER + LOOP + "    holder.get().step()\n",
    "by a function": START + "def chosen():\n    return optimizer\n" + LOOP + "    chosen().step()\n",
    "by pairs": START + 'pairs = [("one", optimizer)]\n' + LOOP + "    for name, each in pairs:\n        each.step()\n",
    "by pairs, appended": START
    + 'pairs = []\npairs.append(("one", optimizer))\n'
    + LOOP
    + "    for name, each in pairs:\n        each.step()\n",
    "by a mapping": START
    + 'table = {"one": optimizer}\n'
    + LOOP
    + "    for name, each in table.items():\n        each.step()\n",
    "out of pairs": START
    + 'pairs = [("one", optimizer)]\n'
    + LOOP
    + '    for name, each in zip(["one"], [o for _, o in pairs]):\n        each.step()\n',
}


@pytest.mark.parametrize("program", GIVEN.values(), ids=GIVEN)
def test_an_optimizer_that_is_given_by_something_is_unscaled_and_stepped(program: str) -> None:
    text = check_trained(program)
    assert text.count("scaler.unscale_(") == 1
    assert text.count("scaler.step(") == 1


BEFORE_THE_STEP = APEX_LOOP.replace("optimizer.step()\n", "")


def test_a_getter_that_does_more_is_not_called_twice() -> None:
    getter = "def chosen():\n    print('stepping')\n    return optimizer\n"
    clip = "torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)\n"
    prepare = f"{INITIALIZE}\n{getter}"
    check_refused(apex(f"{BEFORE_THE_STEP}{clip}chosen().step()", prepare), "AMP307")
    assert rewrite(apex(f"{BEFORE_THE_STEP}chosen().step()", prepare)).status == "migrated"


UPDATER = """
class Updater:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __call__(self):
        self.optimizer.step()

class Holder:
    def __init__(self, updater):
        self.updater = updater

    def finish(self):
        self.updater()

def main(model, optimizer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    updater = Updater(optimizer)
"""
CALLED = {
    "by its name": LOOP + "    updater()\n",
    "by its method's name": LOOP + "    updater.__call__()\n",
    "where it is kept": "holder = Holder(updater)\n" + LOOP + "    holder.updater()\n",
    "by what keeps it": "holder = Holder(updater)\n" + LOOP + "    holder.finish()\n",
}


@pytest.mark.parametrize("loop", CALLED.values(), ids=CALLED)
def test_an_object_that_steps_where_it_is_called_is_given_the_scaler(loop: str) -> None:
    text = check_trained(UPDATER + indent(loop, "    ") + "\nmain(model, optimizer)\n")
    assert "updater = Updater(optimizer, scaler)" in text
    assert ".unscale_(" in text
    assert "self.scaler.step(self.optimizer)" in text


COMPUTER = """
class Computer:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __call__(self, loss):
        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()

def main(model, optimizer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    computer = Computer(optimizer)
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        computer(loss)
        seen.append(clip_grad_norm_(amp.master_params(optimizer), 0.05).item())
        optimizer.step()

main(model, optimizer)
"""


def test_an_object_that_scales_where_it_is_called_is_given_the_scaler() -> None:
    assert "computer = Computer(optimizer, scaler)" in check_trained(COMPUTER)
