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
