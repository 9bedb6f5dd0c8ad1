"""A model that a helper sets up and gives back is run with the switch that the helper asked, under whichever name: AMP501, AMP509."""

from __future__ import annotations

import re

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import rewrite_files

NET = """
from torch import nn


class Speaker(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, 8)
        self.last = nn.Linear(8, 2)

    def forward(self, x, targets):
        return self.last(self.first(x) + targets)

    def speak(self, x):
        return self.last(self.first(x))
"""
PROGRAM = """
import argparse

import torch
from apex import amp
from net import Speaker


def load(parser, options):
    parser.add_argument("--width", type=int, default=4)
    options, _ = parser.parse_known_args()
    net = Speaker(options.width).cuda()
    net.eval()
    if options.half_run:
        net, _ = amp.initialize(net, [], opt_level="O1")
    return net, options


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--half-run", action="store_true")
    options, _ = parser.parse_known_args()
    net, options = load(parser, options)
    x = torch.randn(3, 4).cuda()
    with torch.no_grad():
        sound = net.speak(x)
    print(sound.shape)


if __name__ == "__main__":
    main()
"""
UNREACHED = PROGRAM.replace("return net, options", "return net").replace("net, options = load", "net = load")


def migrated(program: str) -> FileResult:
    found = rewrite_files({"run.py": program, "net.py": NET})["run.py"]
    assert found.after is not None, found.findings
    return found


def switches(program: str) -> list[str]:
    after = migrated(program).after
    assert after is not None
    return re.findall(r"torch\.autocast\(\"cuda\", dtype=torch\.float16, enabled=(.*?)\):", after)


def codes(program: str) -> set[str]:
    return {f.code for f in migrated(program).findings}


def test_a_name_that_a_helper_gives_anew_is_read_below_its_call() -> None:
    assert switches(PROGRAM) == ["options.half_run"]
    assert not codes(PROGRAM) & {"AMP502", "AMP509"}


def test_what_a_helper_gives_back_may_have_another_name() -> None:
    assert switches(PROGRAM.replace("net, options = load", "net, read = load")) == ["read.half_run"]


@pytest.mark.parametrize(
    ("parameter", "asked", "given"),
    [
        ("config", "config.half_run", "options"),
        ("half", "half", "options.half_run"),
        ("*, half", "half", "half=options.half_run"),
    ],
)
def test_what_a_helper_is_given_may_have_another_name(parameter: str, asked: str, given: str) -> None:
    program = PROGRAM.replace("load(parser, options):", f"load({parameter}):").replace(
        '    parser.add_argument("--width", type=int, default=4)\n    options, _ = parser.parse_known_args()\n', ""
    )
    program = program.replace("options.width", "4").replace("if options.half_run", f"if {asked}")
    program = program.replace("return net, options", "return net").replace(
        "net, options = load(parser, options)", f"net = load({given})"
    )
    assert switches(program) == ["options.half_run"]


def test_a_name_that_is_given_anew_since_is_none() -> None:
    since = PROGRAM.replace(
        "    x = torch.randn", "    options = argparse.Namespace(half_run=False)\n    x = torch.randn"
    )
    assert "AMP509" in codes(since)
    given = since.replace("def load(parser, options):", "def load(config):").replace(
        '    parser.add_argument("--width", type=int, default=4)\n    options, _ = parser.parse_known_args()\n', ""
    )
    given = given.replace("options.width", "4").replace("if options.half_run", "if config.half_run")
    given = given.replace("return net, options", "return net").replace(
        "net, options = load(parser, options)", "net = load(options)"
    )
    assert "AMP509" in codes(given)


def test_an_object_that_one_maker_makes_twice_is_not_told_from_the_other() -> None:
    program = PROGRAM.replace(
        "def load(parser, options):", "def read():\n    return argparse.Namespace(half_run=1)\n\n\ndef load():"
    )
    program = program.replace(
        '    parser.add_argument("--width", type=int, default=4)\n    options, _ = parser.parse_known_args()',
        "    options = read()",
    )
    program = program.replace("options.width", "4").replace("return net, options", "return net")
    program = program.replace("net, options = load(parser, options)", "net = load()\n    mine = read()")
    assert "AMP509" in codes(program)


def test_the_method_that_is_called_goes_under_autocast_where_nothing_tells() -> None:
    after = migrated(UNREACHED).after
    assert after is not None
    assert 'net.speak = torch.autocast("cuda", dtype=torch.float16)(net.speak)' in after
    assert "net.forward" not in after
    told = [f.message for f in migrated(UNREACHED).findings if f.code == "AMP509"]
    assert len(told) == 1
    assert "its own speak is under autocast" in told[0]
    assert "AMP502" not in codes(UNREACHED)


def test_the_forward_goes_along_where_it_is_called_besides() -> None:
    after = migrated(UNREACHED.replace("    print(sound", "        whole = net(x, x)\n    print(whole, sound")).after
    assert after is not None
    assert 'net.forward = torch.autocast("cuda", dtype=torch.float16)(net.forward)' in after
    assert 'net.speak = torch.autocast("cuda", dtype=torch.float16)(net.speak)' in after


def test_a_method_that_is_not_of_the_model_given_is_refused() -> None:
    program = UNREACHED.replace("    net.eval()\n", "    net = torch.nn.DataParallel(net)\n").replace(
        "net.speak(x)", "net.module.speak(x)"
    )
    found = rewrite_files({"run.py": program, "net.py": NET})["run.py"]
    assert ".speak = " not in (found.after or "")
