"""A program that checks its options one by one before it trains: conditions of many flags are compared all the same."""

from __future__ import annotations

from itertools import pairwise

import pytest

from amp_migrate.audit.ways.formulas import Formula, conjunction, disjunction, example, impossible, negation
from tests.audit.helpers import doubts, told

FLAGS: list[Formula] = [f".f{number}" for number in range(20)]
PAIRS = [negation(conjunction([f"{a}", f"{b}"])) for a, b in zip(FLAGS[::2], FLAGS[1::2], strict=True)]

CHECKS = "".join(f"    if args.n{number} < 1:\n        raise ValueError(args.n{number})\n" for number in range(20))
PAIRED = "".join(
    f"    if args.a{number} is not None and not args.a{number}.exists():\n        raise ValueError\n"
    for number in range(12)
)
BEFORE = """
import torch
from apex import amp

def validate(*, model, loader, **_):
    return [model(x) for x in loader]

def main(args):
{checks}    model, optimizer = make(args)
    if args.main:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    else:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level, verbosity=0)
    settings = {{"loader": load(args)}}
    settings["model"] = model
    with amp.scale_loss(model(args.x).sum(), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    validate(**settings)

main(parse())
"""
AFTER = """
import torch

def validate(*, model, loader, **_):
    return [model(x) for x in loader]

def main(args):
{checks}    model, optimizer = make(args)
    scaler = torch.amp.GradScaler("cuda", enabled=args.level != "O0")
    settings = {{"loader": load(args)}}
    settings["model"] = model
    with torch.autocast("cuda", dtype=torch.float16, enabled=args.level != "O0"):
        loss = model(args.x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    validate(**settings)

main(parse())
"""


@pytest.mark.parametrize("checks", ["", CHECKS, PAIRED, CHECKS + PAIRED])
def test_a_forward_is_told_of_however_much_was_checked_before(checks: str) -> None:
    before, after = BEFORE.format(checks=checks), AFTER.format(checks=checks)
    assert told(doubts(before, after), "AMP531") == [(5, "review")]
    inside = "    return [model(x) for x in loader]"
    region = '    with torch.autocast("cuda", dtype=torch.float16, enabled=_["level"] != "O0"):\n    ' + inside
    given = after.replace(inside, region).replace(
        '{"loader": load(args)}', '{"loader": load(args), "level": args.level}'
    )
    assert not told(
        doubts(before.replace('{"loader": load(args)}', '{"loader": load(args), "level": args.level}'), given), "AMP531"
    )


def test_what_has_to_hold_is_found_out_of_many_flags() -> None:
    formula = conjunction(
        [*PAIRS, ".f0", disjunction([conjunction([*PAIRS, ".f2"]), conjunction([*PAIRS, ".f4", ".f5"])])]
    )
    found = example(formula)
    assert found is not None
    assert [found[f".f{number}"] for number in range(4)] == [True, False, True, False]


def test_what_contradicts_itself_holds_never() -> None:
    many = conjunction([*PAIRS, *FLAGS[::2]])
    assert example(conjunction([many, ".f1"])) is None
    assert example(conjunction([many, ".level == 'O1'", ".level == 'O2'"])) is None
    assert example(conjunction([many, disjunction([".level == 'O1'", ".y"]), ".level == 'O2'", negation(".y")])) is None
    assert impossible(conjunction([*PAIRS, *FLAGS, ".x"]), {".x": True})
    assert not impossible(many, {".f1": False})


def test_too_many_that_hang_together_are_not_compared() -> None:
    chained = [disjunction([a, b]) for a, b in pairwise(FLAGS)]
    assert example(conjunction(chained)) is None
