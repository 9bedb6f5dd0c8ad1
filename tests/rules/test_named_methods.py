"""Methods that read gradients and are run by their name: nothing in sight calls them."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite

HOOKS = """
import torch
from apex import amp


class Clip:
    def __init__(self, model):
        self.model = model

    def after_backward(self, trainer):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)


class Names:
    DONE = "after_backward"
    START = "before_epoch"


class Trainer:
    def __init__(self, model, loader, callbacks, every):
        self.callbacks, self.loader, self.every = callbacks, loader, every
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.model, self.optimizer = amp.initialize(model, self.optimizer, opt_level="O1")

    def fire(self, name):
        for callback in self.callbacks:
            getattr(callback, name)(self)

    def run(self):
        for index, (x, y) in enumerate(self.loader):
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            EVENT
            self.optimizer.step()
"""


@pytest.mark.parametrize(
    "event",
    ['self.fire("after_backward")', "self.fire(name=Names.DONE)", 'getattr(self.callbacks[0], "after_backward")(self)'],
)
def test_gradients_are_unscaled_before_a_reader_is_run_by_its_name(event: str) -> None:
    result = rewrite(HOOKS.replace("EVENT", event))
    assert f"            self.scaler.unscale_(self.optimizer)\n            {event}\n" in (result.after or "")
    assert any(f.code == "AMP301" for f in result.findings)


@pytest.mark.parametrize("event", ["self.fire(Names.START)", 'print("after_backward")', "pass"])
def test_what_runs_no_reader_is_left_alone(event: str) -> None:
    assert "unscale_" not in (rewrite(HOOKS.replace("EVENT", event)).after or "unscale_")


def test_a_name_is_only_a_name_where_nothing_is_asked_for_by_a_variable() -> None:
    program = HOOKS.replace("getattr(callback, name)(self)", "callback(name)")
    assert "unscale_" not in (rewrite(program.replace("EVENT", 'self.fire("after_backward")')).after or "unscale_")


def test_what_names_a_method_that_is_called_does_not_run_it() -> None:
    timed = 'self.fire("after_backward")\n            Clip(self.model).after_backward(None)'
    unscaled = timed.replace("            Clip", "            self.scaler.unscale_(self.optimizer)\n            Clip")
    assert unscaled in (rewrite(HOOKS.replace("EVENT", timed)).after or "")


def test_an_event_of_each_micro_batch_is_refused() -> None:
    """Others listen to it, so that it cannot move to the step; and `unscale_` there would come more than once."""
    accumulating = HOOKS.replace("EVENT", 'self.fire("after_backward")').replace(
        "            self.optimizer.step()",
        "            if index % self.every == 0:\n                self.optimizer.step()",
    )
    result = rewrite(accumulating)
    assert result.after is None
    (told,) = [f for f in result.findings if f.code == "AMP307"]
    assert told.message.startswith(
        "Clip.after_backward, which this runs by its name, reads the gradients of every micro"
    )


LOADERS = HOOKS.replace(
    "    def run(self):",
    """    def part(self, name, wanted="train"):
        if name != wanted:
            print(f"asked for {name}", name)
        return BODY

    def run(self):""",
)


@pytest.mark.parametrize(
    ("body", "runs"),
    [
        ("self.loaders[name]", False),
        ("self.part(wanted, name)", False),
        ("self.loaders.chosen(name)", True),
        ("self.fire(name)", True),
        ("self.loaders[name + '_loader']", False),
        ("open(folder + '_' + name)", False),
    ],
)
def test_what_a_function_of_the_program_only_looks_up_runs_no_method(body: str, runs: bool) -> None:
    """A part of the data that is called as a method that clips: only where the name may be run a reader is met."""
    result = rewrite(LOADERS.replace("BODY", body).replace("EVENT", 'self.part("after_backward")'))
    assert result.after is not None
    assert ("unscale_" in result.after) == runs
