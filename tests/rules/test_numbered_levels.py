"""A level that is made of a number, `"O%i" % opts.level`, is asked for as that number; what a program refuses is not told of."""

from __future__ import annotations

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import rewrite

PROGRAM = """
import argparse

import torch
from apex import amp
from project import build, loader

def main(opts):
    model, optimizer = build()
    ASKED
    if GUARD:
        model, optimizer = amp.initialize(model, optimizer, opt_level=LEVEL)
    for x in loader:
        loss = model(x).sum()
        if GUARD:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

parser = argparse.ArgumentParser()
parser.add_argument("--level", type=int, default=-1)
main(parser.parse_args())
"""


def result(level: str = '"O%i" % opts.level', guard: str = "opts.level >= 0", asked: str = "pass") -> FileResult:
    return rewrite(PROGRAM.replace("LEVEL", level).replace("GUARD", guard).replace("ASKED", asked))


def enabled(found: FileResult) -> str:
    assert found.after is not None, found.findings
    return found.after.partition("enabled=")[2].partition(")\n")[0]


def told(found: FileResult) -> str:
    return " ".join(f.message for f in found.findings if f.code == "AMP112")


@pytest.mark.parametrize("level", ['"O%i" % opts.level', '"O%d" % opts.level', '"O%d" % (opts.level,)'])
def test_it_is_asked_for_as_the_number(level: str) -> None:
    assert enabled(result(level)) == "opts.level >= 0 and opts.level != 0"


@pytest.mark.parametrize(
    ("guard", "now"), [("opts.level > 0", "opts.level > 0"), ("opts.level >= 1", "opts.level >= 1")]
)
def test_once_where_the_number_is_asked_for_anyway(guard: str, now: str) -> None:
    assert enabled(result(guard=guard)) == now


def test_another_text_is_compared_as_it_is() -> None:
    assert enabled(result('"O" + str(opts.level)')) == 'opts.level >= 0 and "O" + str(opts.level) != "O0"'


def test_levels_that_a_program_refuses_are_not_told_of() -> None:
    assert "O2 and O3" in told(result())
    assert "O2 and O3" in told(result(asked="assert opts.level <= 3"))
    assert "O2, where" in told(result(asked="assert opts.level <= 2"))
    assert "O2, where" in told(result(asked="if opts.level > 2: raise ValueError"))
    assert "O2, where" in told(result(guard="not opts.level > 2"))
    assert "O2, where" in told(result(asked="if opts.level > 2 or opts.level < -1: return"))
    assert "O2 and O3" in told(result(asked="if opts.level > 2 and opts.level < 9: return"))
    assert not told(result(guard="opts.level == 1"))
    assert not told(result(guard="opts.level > 0", asked="assert opts.level <= 1"))
    assert "O2 and O3" in told(result('"O" + str(opts.level)', asked="assert opts.level <= 1"))
