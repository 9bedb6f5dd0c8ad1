"""`amp.initialize(*things)`: the lists that the starred name may be, where they are written out or added to."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, rewrite
from tests.rules.programs import found

SOURCE = """
import torch
from apex import amp


def main(train, model, loader, criterion):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {lists}
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
CALL = 'amp.initialize(*things, opt_level="O1")'
GIVEN = f"model, optimizer = {CALL}"
TAKEN = f"things = list({CALL})\nmodel = things[0]\nif len(things) > 1:\n    optimizer = things[1]"


def migrated(lists: str) -> str:
    """What stands between the optimizer and the loop afterwards."""
    result = rewrite(SOURCE.format(lists=lists.replace("\n", "\n    ")))
    assert not [f for f in result.findings if f.status == "manual"], result.findings
    assert result.after is not None
    between = result.after.partition("lr=0.1)\n")[2].partition("    for x, y")[0]
    return "\n".join(line.removeprefix("    ") for line in between.splitlines())


SCALER = 'scaler = torch.amp.GradScaler("cuda")'
BRANCHES = "if train:\n    things = [model, optimizer]\nelse:\n    things = [model]"


@pytest.mark.parametrize(
    ("lists", "after"),
    [
        (f"things = [model, optimizer]\n{GIVEN}", SCALER),
        (
            f"things = (model, optimizer)\nprint(len(things))\n{GIVEN}",
            f"things = (model, optimizer)\nprint(len(things))\n{SCALER}\nmodel, optimizer = things",
        ),
        (
            f"things = [model]\nthings.append(optimizer)\n{GIVEN}",
            f"things = [model]\nthings.append(optimizer)\n{SCALER}\nmodel, optimizer = things",
        ),
        (
            f"things = [model]\nif train:\n    things += [optimizer]\n{TAKEN}",
            f"things = [model]\nif train:\n    things += [optimizer]\n{SCALER}\n{TAKEN.partition(chr(10))[2]}",
        ),
        (f"{BRANCHES}\n{TAKEN}", f"{BRANCHES}\n{SCALER}\n{TAKEN.partition(chr(10))[2]}"),
        (
            f"{BRANCHES}\nback = {CALL}\nmodel = back[0] if train else back",
            f"{BRANCHES}\n{SCALER}\nback = tuple(things) if len(things) > 1 else things[0]\nmodel = back[0] if train else back",
        ),
        (
            f"things = [model, optimizer]\nmodel = torch.nn.Sequential(model)\n{GIVEN}",
            f"things = [model, optimizer]\nmodel = torch.nn.Sequential(model)\n{SCALER}\nmodel, optimizer = things",
        ),
    ],
    ids=["one", "read", "appended", "added", "branches", "given back", "wrapped since"],
)
def test_a_list_in_sight_says_what_initialize_is_given(lists: str, after: str) -> None:
    assert migrated(lists) == after


@pytest.mark.parametrize(
    "lists",
    [
        f"things = train.things\n{GIVEN}",
        f"things = [model, optimizer]\nfill(things)\n{GIVEN}",
        f"things = [model]\nthings.insert(0, train.model)\n{GIVEN}",
        f"if train:\n    things = [model, optimizer]\nelse:\n    things = [train.model]\n{GIVEN}",
        f"things = [model]\nif train:\n    things.extend([optimizer, train.on])\n{GIVEN}",
        f"things = []\nif train:\n    things.append(model)\n{GIVEN}",
        f"things = [model, *train.rest]\n{GIVEN}",
    ],
    ids=["elsewhere", "handed on", "put first", "unlike", "a setting at times", "empty", "starred"],
)
def test_a_list_that_may_be_another_is_not_in_sight(lists: str) -> None:
    (told,) = found(check_manual(SOURCE.format(lists=lists.replace("\n", "\n    ")), "AMP111"), "AMP111")
    assert "come from *things, whose items are not in sight" in told.message


KEPT = """
import torch
from apex import amp


class Runner:
    def __init__(self, args):
        self.args, self.model = args, torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1) if args.train else None
        things = [self.model] if self.optimizer is None else [self.model, self.optimizer]
        if args.level is not None:
            things = list(amp.initialize(*things, opt_level=args.level))
            things[0].amp = amp
        self.model = things[0]

    def step(self, x, y):
        loss = (self.model(x) - y).pow(2).mean()
        self.optimizer.zero_grad()
        if self.args.level is None:
            loss.backward()
        else:
            with self.model.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
        self.optimizer.step()

    def save(self, path):
        state = dict(model=self.model.state_dict(), amp=self.model.amp.state_dict() if self.args.level else None)
        torch.save(state, path)


def main(args, loader):
    runner = Runner(args)
    for x, y in loader:
        runner.step(x, y)
    runner.save(args.path)
"""


def test_amp_that_is_kept_on_an_item_of_the_list_is_kept_on_what_that_is() -> None:
    result = rewrite(KEPT)
    assert not [f for f in result.findings if f.status == "manual"], result.findings
    assert result.after is not None
    assert "self.model.scaler = torch.amp.GradScaler(" in result.after
    assert "things[0].amp" not in result.after
    assert "scaler=self.model.scaler.state_dict() if" in result.after  # the key of a choice, too
