"""Apex that one function imports, and by whose name the whole file sets it up: migrated as if the import were the file's, and
told to have raised a NameError."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import rewrite, run_files

PROGRAM = """
import argparse

import torch
from torch import nn


class Worker:
    def __init__(self, net, opts):
        self.net, self.opts = net, opts
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        if opts.level >= 0:
            import apex
            self.set_up()
            if opts.several:
                self.net = apex.parallel.DistributedDataParallel(self.net, delay_allreduce=True)

    def set_up(self):
        opts = self.opts
        self.net, self.optimizer = apex.amp.initialize(self.net, self.optimizer, opt_level="O%i" % opts.level)

    def update(self, loss):
        self.optimizer.zero_grad()
        if self.opts.level == -1:
            loss.backward()
        else:
            with apex.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
            nn.utils.clip_grad_norm_(apex.amp.master_params(self.optimizer), 1.0)
        self.optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--level", type=int, default=-1)
    parser.add_argument("--several", action="store_true")
    opts = parser.parse_args(ARGS)
    worker = Worker(torch.nn.Linear(4, 2), opts)
    for _ in range(4):
        worker.update(worker.net(torch.randn(3, 4)).pow(2).mean())
    print("[true]")


if __name__ == "__main__":
    main()
"""


def said(result: FileResult) -> list[tuple[str, int, str]]:
    return [(f.review, f.line, f.message) for f in result.findings if f.code == "AMP102" and f.status == "note"]


def test_it_is_migrated_and_told_to_have_raised(tmp_path: Path) -> None:
    result = rewrite(PROGRAM)
    assert result.after is not None, result.findings
    assert "apex" not in result.after
    assert not [f for f in result.findings if f.status == "manual"]
    ((review, line, message),) = said(result)
    assert (review, line) == ("review", 12)
    assert "apex is imported into __init__ alone, and read elsewhere (lines 19, 26, 28)" in message
    assert "ended in a NameError" in message
    assert "for the first time" in message
    for level in ("-1", "1"):
        text = result.after.replace("ARGS", f'["--level={level}"]')
        assert run_files(tmp_path, {"train.py": text}, "train.py") == [True]


def test_the_same_with_amp_itself() -> None:
    source = PROGRAM.replace("import apex\n", "from apex import amp, parallel\n").replace("apex.amp.", "amp.")
    result = rewrite(source.replace("apex.parallel", "parallel"))
    assert result.after is not None, result.findings
    assert "amp.initialize" not in result.after
    assert said(result)


def test_what_is_refused_is_left_whole() -> None:
    """The wrapper stays with what steps it: three lines of it were written, and the import went."""
    source = PROGRAM.replace("        self.optimizer.step()\n", "        self.optimizer.step(lambda: loss)\n")
    result = rewrite(source)
    assert result.after is None, result.findings
    assert any(f.status == "manual" and f.line == 15 for f in result.findings)
    ((_, _, message),) = said(result)
    assert "ended in a NameError" in message
    assert "for the first time" not in message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            import apex\n", "            import apex\n            globals()['apex'] = apex\n"),
        ("import argparse\n", "import argparse\nfrom tools import *\n"),
        ("    def set_up(self):\n", "    def set_up(self):\n        apex = make()\n"),
        ("            import apex\n", ""),
    ],
)
def test_what_else_may_bind_it_is_not_taken_for_it(old: str, new: str) -> None:
    result = rewrite(PROGRAM.replace(old, new))
    assert not said(result)
    assert result.after is None or "apex.amp" in result.after


CAUGHT = """
        try:
            self.net, self.optimizer = apex.amp.initialize(self.net, self.optimizer, opt_level="O%i" % opts.level)
        except KINDS:
            THEN
"""


@pytest.mark.parametrize(
    ("kinds", "then", "meant"),
    [
        ("NameError", "opts.level = -1", False),
        ("(ImportError, NameError)", "opts.level = -1", False),
        ("Exception as error", "print(error)", False),
        ("Exception as error", "raise SystemExit(error)", True),
        ("ImportError", "opts.level = -1", True),
    ],
)
def test_who_catches_the_error_goes_on_in_float32(kinds: str, then: str, meant: bool) -> None:
    line = next(x for x in PROGRAM.splitlines(True) if "apex.amp.initialize" in x)
    result = rewrite(PROGRAM.replace(line, CAUGHT.replace("KINDS", kinds).replace("THEN", then).lstrip("\n")))
    assert bool(said(result)) is meant
    if not meant:
        assert result.after is None
        assert any("a NameError with Apex installed, too, which is caught there" in f.message for f in result.findings)
