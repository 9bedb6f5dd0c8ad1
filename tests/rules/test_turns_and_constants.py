"""What is only done in the last turn of a loop, what a constant argument rules out, and one of several optimizers handed to
one helper: read by the paths that exist. Migrated, and trained as before; where the paths are others, refused."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.programs import check_refused
from tests.rules.trained import PRELUDE, check_trained

VALUES = "torch.nn.utils.clip_grad_value_"  # has no counterpart for gradients that carry the scale
TASKS = """
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    tasks = [1.0, 0.5, 0.25]
    for x, y in loader:
        for {header}:
            loss = criterion(model(x), y) * tasks[i]
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            if {last}:
                seen.append(clip_grad_norm_(model.parameters(), 0.05))
                optimizer.step()
                optimizer.zero_grad()
    """
LAST = [
    ("i, task in enumerate(tasks)", "i == len(tasks) - 1"),
    ("i, task in enumerate(tasks)", "i + 1 == len(tasks)"),
    ("i, task in enumerate(tasks)", "not i < len(tasks) - 1"),
    ("i in range(3)", "i == 3 - 1"),
    ("i in range(len(tasks))", "i == len(tasks) - 1 and x is not None"),
]


@pytest.mark.parametrize(("header", "last"), LAST)
def test_the_last_turn_of_a_loop_leads_to_no_other(header: str, last: str) -> None:
    after = check_trained(TASKS.format(header=header, last=last))
    assert after.count("scaler.unscale_(optimizer)") == 1


@pytest.mark.parametrize("last", ["i == 1", "i >= len(tasks) - 2", "i == len(loader) - 1"])
def test_another_turn_does(last: str) -> None:
    clip = TASKS.replace("            optimizer.step()\n                optimizer.zero_grad()\n", "        pass\n") + (
        "    optimizer.step()\n        optimizer.zero_grad()\n"
    )
    program = clip.format(header="i, task in enumerate(tasks)", last=last).replace("clip_grad_norm_", VALUES)
    check_refused(PRELUDE + textwrap.dedent(program), "AMP307")


SKIPPING = """
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


    class Schedule:
        def __init__(self, optimizer):
            self.optimizer = optimizer
            self.count = 0

        def step(self, skip=False):
            self.count += 1
            if not skip:
                self.optimizer.step()


    schedule = Schedule(optimizer)
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        seen.append(clip_grad_norm_(model.parameters(), 0.05))
        schedule.step({given})
    """


@pytest.mark.parametrize("given", ["", "False", "skip=False"])
def test_what_a_constant_rules_out_is_no_path(given: str) -> None:
    after = check_trained(SKIPPING.format(given=given))
    assert "scaler.unscale_(schedule.optimizer)" in after


HANDED = """
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    every, count = 2, 0


    class Scaling:
        def __init__(self):
            self.norm = None

        def __call__(self, loss, update=True):
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            if update:
                self.norm = clip_grad_norm_(model.parameters(), 0.05)

        def step(self, update=True):
            if update:
                optimizer.step()


    def turn(scaling, x, y, number):
        scaling(criterion(model(x), y) / every, update={handed})
        if {left}:
            return
        seen.append(scaling.norm)
        scaling.step({stepped})
        optimizer.zero_grad()


    scaling = Scaling()
    for x, y in loader:
        turn(scaling, x, y, count % every)
        count += 1
    """


@pytest.mark.parametrize(
    ("handed", "left", "stepped"),
    [
        ("(number + 1 == every)", "number + 1 != every", ""),
        ("not number + 1 < every", "number + 1 < every", ""),
        ("number + 1 == every and model.training", "not (number + 1 == every)", "number + 1 == every"),
    ],
)
def test_a_condition_that_is_handed_over_is_the_one_before_the_step(handed: str, left: str, stepped: str) -> None:
    after = check_trained(HANDED.format(handed=handed, left=left, stepped=stepped))
    assert after.count("scaler.unscale_(optimizer)") == 1


def test_another_condition_is_not() -> None:
    program = HANDED.format(handed="number + 1 == every", left="count < 3", stepped="").replace(
        "clip_grad_norm_", VALUES
    )
    check_refused(PRELUDE + textwrap.dedent(program), "AMP307")
    same = HANDED.format(handed="number + 1 == every", left="number + 1 != every", stepped="")
    set_anew = same.replace(
        "            if update:\n", "            update = loss.item() > 0\n            if update:\n", 1
    )
    check_refused(PRELUDE + textwrap.dedent(set_anew).replace("clip_grad_norm_", VALUES), "AMP307")


HELPER = """
    other = torch.nn.Linear(1, 1)
    second = torch.optim.SGD(other.parameters(), lr=0.1)
    model, [optimizer, second] = amp.initialize(model, [optimizer, second], opt_level="O1", num_losses=2)


    def backward(loss, optim, number):
        optim.zero_grad()
        with amp.scale_loss(loss, optim, loss_id=number) as scaled_loss:
            scaled_loss.backward()
        optim.step()


    def both():
        return optimizer, second


    first, last = both()
    for x, y in loader:
        backward(criterion(model(x), y), first, 0)
        backward(criterion(other(y), y), last, 1)
        seen.append(criterion(other(y), y).item())
    """


def test_a_helper_zeroes_scales_and_steps_the_same_optimizer_whichever_it_is() -> None:
    after = check_trained(HELPER)
    assert "scaler.step(optim)" in after


def test_a_constant_that_skips_the_step_leaves_no_step() -> None:
    program = SKIPPING.format(given="skip=True") + "    optimizer.step()\n"
    after = check_trained(program.replace("self.optimizer.step()", "print(self.count)"))
    assert after.count("scaler.step(") == 1


MADE = {
    "in both branches": "if len(loader) > 2:\n        chosen = optimizer\n    else:\n        chosen = optimizer\n",
    "or it left": "if len(loader) > 2:\n        chosen = optimizer\n    else:\n        raise ValueError\n",
    "in a try": "try:\n        chosen = optimizer\n    except ValueError:\n        chosen = None\n",
    "and read above": "if len(loader) > 2:\n        chosen = optimizer\n    chosen.zero_grad()\n",
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_an_optimizer_made_in_branches_is_there_further_down(made: str) -> None:
    program = f"""
    {made}
    model, chosen = amp.initialize(model, chosen, opt_level="O1")
    for x, y in loader:
        chosen.zero_grad()
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, chosen) as scaled_loss:
            scaled_loss.backward()
        seen.append(clip_grad_norm_(model.parameters(), 0.05))
        chosen.step()
    """
    assert "scaler.unscale_(chosen)" in check_trained(program)


def test_a_helper_that_runs_the_backward_stands_in_no_region_for_the_loss_it_returns() -> None:
    program = """
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


    def loss_backward(losses):
        loss = sum(losses)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        return loss


    for x, y in loader:
        losses = [criterion(model(x), y)]
        losses = loss_backward(losses)
        seen.append(losses.item())
    """
    after = check_trained(program)
    assert "\n    losses = loss_backward(losses)\n" in after
