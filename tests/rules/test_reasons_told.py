"""Reasons that are told where nothing runs the model, or where a function is run by what decorates it."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, rewrite_files
from tests.rules.programs import found

IDLE = """
import torch
import wandb
from apex import amp


def validate(model, loader, optimizer):
    model.eval()
    return [len(batch) for batch in loader]


def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    {seen}
    return validate(model, loader, optimizer)


main(wandb.config.model, wandb.config.loader)
"""


@pytest.mark.parametrize("seen", ["pass", "wandb.watch(model)"])
def test_what_is_given_a_model_and_does_not_call_it_is_named(seen: str) -> None:
    (told,) = found(check_manual(IDLE.format(seen=seen), "AMP502"), "AMP502")
    assert "what is given it does not call it (validate at train.py:15)" in told.message
    assert "watch" not in told.message


def test_what_may_run_it_out_of_sight_is_named_first() -> None:
    (told,) = found(check_manual(IDLE.format(seen="wandb.run(model)"), "AMP502"), "AMP502")
    assert "may run it, see train.py:14 (wandb.run)" in told.message


PROGRAM = """
import torch
from apex import amp


def train(model, optimizer, loader):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
HANDLER = """
import torch
from apex import amp
from events import handles


class Clips:
    {sign}
    def clip(self, trainer):
        torch.nn.utils.clip_grad_norm_(amp.master_params(trainer.kept), 1.0)


kept = [Clips()]
"""


@pytest.mark.parametrize("sign", ["@handles(1)", ""])
def test_a_function_that_something_decorates_is_not_said_to_go(sign: str) -> None:
    files = {"one.py": PROGRAM, "two.py": PROGRAM, "clips.py": HANDLER.replace("{sign}", sign)}
    (told,) = (f for f in rewrite_files(files)["clips.py"].findings if f.status == "manual")
    assert "nothing in sight calls Clips.clip" in told.message
    assert ("what decorates it (@handles(1))" in told.message) is bool(sign)
    assert ("delete it" in told.message) is not bool(sign)


SET_UP = """
import torch
from apex import amp
from engine import Runner


def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    Runner(model, optimizer).train(loader)
"""
ENGINE = """
from apex import amp


class Engine:
    def __init__(self, model, optimizer):
        self.model, self.kept = amp.initialize(model, optimizer, opt_level="O1")

    def train(self, loader):
        for x, y in loader:
            loss = (self.model(x) - y).pow(2).mean()
            with amp.scale_loss(loss, self.kept) as scaled_loss:
                scaled_loss.backward()
            self.kept.step()
"""


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"engine.py": ENGINE}, "it is handed to Runner of engine, and engine.py has no Runner: mend the import"),
        ({"engine/__init__.py": "from .own import Runner\n", "engine/own.py": ENGINE}, "engine/own.py has no Runner"),
        ({"engine.py": ENGINE + "\nfrom runners import *\n"}, "could not be followed"),
        ({"engine.py": ENGINE + "\n\ndef __getattr__(name):\n    return Engine\n"}, "could not be followed"),
        ({"engine.py": ENGINE + '\nglobals()["Runner"] = Engine\n'}, "could not be followed"),
        (
            {"other.py": ENGINE, "both.py": "import other\nimport train\n"},
            "it is handed to Runner of engine, not among the files read",
        ),
    ],
    ids=["renamed", "handed on", "starred", "asked", "placed", "unread"],
)
def test_a_name_that_the_file_read_does_not_have_is_told_of(files: dict[str, str], reason: str) -> None:
    told = [f for f in rewrite_files({"train.py": SET_UP, **files})["train.py"].findings if f.status == "manual"]
    assert any(reason in f.message for f in told), told


OWN = """
import torch
from apex import amp


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def scaled(self, loss):
        return amp.scale_loss(loss, self.optimizer)

    def train(self, loader):
        for x, y in loader:
            loss = (self.model(x) - y).pow(2).mean()
            with self.scaled(loss) as scaled_loss:
                scaled_loss.backward()
            self.optimizer.step()
"""
OTHER = """
class Runner:
    def __init__(self, amp, optimizer):
        self.amp, self.optimizer = amp, optimizer

    def train(self, loss):
        with self.amp.scale_loss(loss, self.optimizer) as scaled_loss:
            scaled_loss.backward()
"""


@pytest.mark.parametrize("ways", ["return {}", "context = {}\n        return context", "self.stack.enter_context({})"])
def test_a_context_that_something_else_enters_is_told_of(ways: str) -> None:
    made = "amp.scale_loss(loss, self.optimizer)"
    source = OWN.replace(f"return {made}", ways.format(made))
    (told,) = found(check_manual(source, "AMP116"), "AMP116")
    assert "train.py:10 makes the context of amp.scale_loss and does not enter it itself" in told.message


def test_a_context_that_is_entered_by_hand_is_told_of() -> None:
    by_hand = (
        "            context = amp.scale_loss(loss, self.optimizer)\n            context.__enter__().backward()\n"
        "            context.__exit__(None, None, None)\n"
    )
    head, _, rest = OWN.partition("            with self.scaled(loss) as scaled_loss:\n")
    source = head.partition("    def scaled")[0] + "    def train" + head.partition("    def train")[2] + by_hand
    source += rest.partition("scaled_loss.backward()\n")[2]
    (told,) = found(check_manual(source, "AMP116"), "AMP116")
    assert "train.py:12 makes the context of amp.scale_loss and enters it by hand, by __enter__()" in told.message


@pytest.mark.parametrize("together", [False, True])
def test_what_scales_a_loss_in_another_program_is_not_blamed(together: bool) -> None:
    files = {
        "one/__init__.py": "",
        "one/setup.py": SET_UP.replace("from engine import Runner", "from wandb import Runner"),
        "two/__init__.py": "",
        "two/runner.py": OTHER,
        "both.py": "import one.setup\nimport two.runner\n" if together else "import one.setup\n",
    }
    told = [f.message for f in rewrite_files(files)["one/setup.py"].findings if f.status == "manual"]
    assert any("two/runner.py" in message for message in told) is together
    assert together or any("handed to Runner of wandb, not among the files read" in message for message in told), told


HANDING = """
import torch
from apex import amp
from library import load_objects, register
from project import build, loader, args

model = build()
model = amp.initialize(model, opt_level="O1")
to_load = {"model": model}
STATEMENT
load_objects(to_load, torch.load(args.path))
for x, y in loader:
    print(model(x))
"""


@pytest.mark.parametrize(
    ("statement", "handed"),
    [
        ('register("amp", amp)', True),
        ("parts = [model, amp]", True),
        ("scale = getattr(amp, args.name)", False),
    ],
)
def test_where_the_module_is_handed_over_is_told(statement: str, handed: bool) -> None:
    """A program that only evaluates has no scaler to stand there."""
    (told,) = found(check_manual(HANDING.replace("STATEMENT", statement), "AMP102"), "AMP102")
    assert told.line == 9
    assert ("hands the module amp over" in told.message) is handed
    assert ("no loss is scaled here" in told.message) is handed


PATCHED = """
from apex.amp import _amp_state


def share_overflows(reduce):
    scaler = _amp_state.loss_scalers[0]
    update = scaler.update_scale

    def shared():
        overflow = reduce(update())
        if overflow:
            scaler._unskipped = 0
        return overflow

    scaler.update_scale = shared
"""
KEPT = """
import torch
from apex import amp
from sharing import share_overflows


def backward(loss, optimizer):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()


def train(model, other, loader, back):
    one, two = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other))
    model, one = amp.initialize(model, one, opt_level="O2")
    other, two = amp.initialize(other, two, opt_level="O2")
    share_overflows(bool)
    for x, y in loader:
        back((model(x) - y).pow(2).mean(), one)
        one.step()


train(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), [], {"plain": backward}["plain"])
"""


def test_private_state_that_nothing_can_replace_is_the_reason() -> None:
    results = rewrite_files({"train.py": KEPT, "sharing.py": PATCHED})
    told = [f for r in results.values() for f in r.findings if f.status == "manual" and "waits for" not in f.message]
    assert [f.code for f in told] == ["AMP404"], told


@pytest.mark.parametrize("kept", ["RUNS = {'clip': clip}", "later(clip)"])
def test_a_function_that_is_a_value_is_not_said_to_go(kept: str) -> None:
    clips = f"""
import torch
from apex import amp


def clip(trainer):
    torch.nn.utils.clip_grad_norm_(amp.master_params(trainer.kept), 1.0)


{kept}
"""
    files = {"one.py": PROGRAM, "two.py": PROGRAM, "clips.py": clips}
    (told,) = (f for f in rewrite_files(files)["clips.py"].findings if f.status == "manual")
    assert "clips.py:9 keeps clip as a value, and what calls it there is out of sight" in told.message
    assert "delete" not in told.message


DERIVED = """
from apex import amp
from outfit.training import Trainer


class Own(Trainer):
    def train(self):
        self.create_optimizer()
        if self.use_apex:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
        for batch in self.loader:
            self.training_step(self.model, batch)
            self.optimizer.step()


class Further(Own):
    pass
"""


def test_a_base_that_is_not_read_is_named_where_it_scales_the_loss() -> None:
    (told,) = found(check_manual(DERIVED, "AMP116"), "AMP116")
    assert "outfit.training.Trainer, which Own derives from, whose files are not read, scales the loss" in told.message
    own = DERIVED.replace("(Trainer)", "").replace("from outfit.training import Trainer\n", "")
    (told,) = found(check_manual(own, "AMP116"), "AMP116")
    assert told.message.endswith("rewrite this file together with the one that trains")
