"""A step that is given a closure, which is None wherever the loss is scaled: AMP212 is about what it may be there."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_manual, rewrite

PROGRAM = """
import argparse
import torch
from apex import amp


def train(args, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
{before}    for x in loader:
        optimizer.zero_grad()
{first}        if args.fp16:
            loss = model(x).sum()
{scaled}            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            def closure():
                loss = model(x).sum()
                loss.backward()
                return loss
        optimizer.step({given})


parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
train(parser.parse_args(), torch.nn.Linear(3, 1).cuda(), data())
"""
GUARD = """\
        if closure is not None and scaler.is_enabled():
            raise RuntimeError("GradScaler does not support closures")
        scaler.step(optimizer, closure)
        scaler.update()
"""


def program(*, before: str = "", first: str = "", scaled: str = "", given: str = "closure") -> str:
    return PROGRAM.format(before=before, first=first, scaled=scaled, given=given)


@pytest.mark.parametrize("given", ["closure", "closure=closure"])
@pytest.mark.parametrize(
    "none",
    [
        {"first": "        closure = None\n"},
        {"scaled": "            closure = None\n"},
        {"first": "        if not args.again:\n            closure = None\n"},
    ],
)
def test_a_closure_of_the_branch_beside_is_none_where_the_loss_is_scaled(none: dict[str, str], given: str) -> None:
    result = rewrite(program(given=given, **none))
    assert result.after is not None
    assert GUARD in result.after
    assert [(f.status, f.review) for f in result.findings if f.code == "AMP212"] == [("note", "look")]
    assert not [f for f in result.findings if f.code == "AMP219"]


@pytest.mark.parametrize(
    "source",
    [
        program(),  # nothing says that it is None
        program(scaled="            closure = lambda: loss\n"),
        program(first="        closure = None\n", scaled="            closure = make(loss)\n"),
        program(before="    closure = make()\n", scaled="            if args.once:\n                closure = None\n"),
        program(first="        closure = None\n", given="closure or again"),
    ],
)
def test_one_that_may_be_more_where_the_loss_is_scaled_is_refused(source: str) -> None:
    check_manual(source, "AMP212")


def test_a_step_with_arguments_of_its_own_is_not_said_to_be_given_a_closure() -> None:
    result = check_manual(program(given="index, batch"), "AMP212")
    (told,) = [f.message for f in result.findings if f.code == "AMP212"]
    assert told.startswith("step is given more than a closure")
