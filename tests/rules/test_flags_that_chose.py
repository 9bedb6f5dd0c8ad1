"""A flag that chose Apex beside a native side: all that ask it get one answer once Apex is gone, the native one."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import rewrite, run_files

PROGRAM = """
import argparse
import os

import torch

found = True
try:
    import apex
except ImportError:
    found = False


class Worker:
    def __init__(self, net, opts):
        self.net, self.opts = net, opts
        assert not opts.from_nvidia or found
        assert opts.level >= 0 or not opts.half
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.scaler = None
        if opts.level >= 0:
            self.set_up()

    def set_up(self):
        opts = self.opts
        if opts.from_nvidia is True:
            self.net, self.optimizer = apex.amp.initialize(self.net, self.optimizer, opt_level="O%i" % opts.level)
        else:
            self.scaler = torch.amp.GradScaler("cuda")

    def update(self, loss, turn):
        opts = self.opts
        if opts.level == -1:
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        elif opts.from_nvidia is True:
            if (turn + 1) % opts.held == 0:
                with apex.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
            else:
                with apex.amp.scale_loss(loss, self.optimizer, delay_unscale=True) as scaled_loss:
                    scaled_loss.backward()
        else:
            DIVIDED
            self.scaler.scale(loss).backward()
            if (turn + 1) % opts.held == 0:
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.optimizer.zero_grad()

    def loss_of(self, x):
        opts = self.opts
        if opts.level == -1 or opts.from_nvidia:
            loss = self.net(x).pow(2).mean()
        else:
            with torch.autocast("cuda"):
                loss = self.net(x).pow(2).mean()
        return loss

    def save(self, path):
        data = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}
        if self.scaler is not None:
            data["scaler"] = self.scaler.state_dict()
        torch.save(data, path)

    def load(self, path):
        data = torch.load(path)
        self.net.load_state_dict(data["net"])
        if self.opts.level == -1 or not self.opts.from_nvidia:
            self.optimizer.load_state_dict(data["optimizer"])
        else:
            print("not loading the optimizer")
        if self.opts.half and not self.opts.from_nvidia:
            self.scaler.load_state_dict(data["scaler"])
        else:
            assert self.scaler is None and "scaler" not in data
        self.kind = dict(native=not self.opts.from_nvidia)


def switch(text):
    return text.lower() in ("1", "true")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--level", type=int, default=-1)
    parser.add_argument("--held", type=int, default=1)
    parser.add_argument("--half", type=switch, default=False)
    parser.add_argument("--from_nvidia", type=switch, default=False)
    opts = parser.parse_args(ARGS)
    worker = Worker(torch.nn.Linear(4, 2), opts)
    for turn in range(4):
        if os.path.isfile("last.pt"):
            worker.load("last.pt")
        worker.update(worker.loss_of(torch.randn(3, 4)), turn)
        worker.save("last.pt")
    print("[true]")


if __name__ == "__main__":
    main()
""".replace("DIVIDED", "if opts.held > 1:\n                loss = loss / opts.held")
ASKED = '["--level=1", "--half=1", "--from_nvidia=1"]'


def told(result: FileResult, code: str) -> list[str]:
    return [f.message for f in result.findings if f.code == code and f.review == "review"]


def test_who_asked_for_apex_takes_the_native_side_everywhere(tmp_path: Path) -> None:
    """Saved and loaded after each step: `assert self.scaler is None` stood where a run that asked for Apex came."""
    result = rewrite(PROGRAM)
    assert result.after is not None, result.findings
    assert "from_nvidia" not in result.after.replace("--from_nvidia", "")
    assert "if opts.level == -1:\n            loss = self.net" in result.after
    assert "if self.opts.half:\n            self.scaler.load_state_dict" in result.after
    assert "native=True" in result.after
    assert "found" not in result.after
    assert run_files(tmp_path, {"train.py": result.after.replace("ARGS", ASKED)}, "train.py") == [True]


def test_what_it_is_told_is_what_differs() -> None:
    result = rewrite(PROGRAM)
    assert not told(result, "AMP137")
    assert not told(result, "AMP531")
    divided, loaded = told(result, "AMP120")
    assert "divides the loss by opts.held, and Apex's did not" in divided
    assert "differed here from one of the native side (`self.opts.level == -1 or not self.opts.from_nvidia`)" in loaded
    (key,) = told(result, "AMP123")
    assert "has no 'scaler'" in key
    assert any("is taken where Apex was asked for, too" in f.message for f in result.findings)


@pytest.mark.parametrize("divided", ["loss = loss / opts.held", "loss /= opts.held"])
def test_a_loss_that_both_sides_divide_is_not_told_of(divided: str) -> None:
    apex = "        elif opts.from_nvidia is True:\n"
    result = rewrite(PROGRAM.replace(apex, f"{apex}            {divided}\n"))
    assert not any("divides" in message for message in told(result, "AMP120"))


@pytest.mark.parametrize(
    ("test", "now"),
    [
        ("opts.from_nvidia == True", "opts.level == -1:"),
        ("opts.from_nvidia is not False", "opts.level == -1:"),
        ("(opts.from_nvidia and opts.held > 1)", "opts.level == -1:"),
        ("(not opts.from_nvidia and opts.held > 1)", "opts.level == -1 or opts.held > 1:"),
    ],
)
def test_however_it_is_asked(test: str, now: str) -> None:
    result = rewrite(PROGRAM.replace("opts.level == -1 or opts.from_nvidia:", f"opts.level == -1 or {test}:"))
    assert result.after is not None, result.findings
    assert f"if {now}\n            loss = self.net" in result.after.replace("(opts.held > 1)", "opts.held > 1")


def test_where_it_is_handed_on_it_is_told_of() -> None:
    source = PROGRAM.replace("def switch", "def noise(of_apex):\n    return 0.5 if of_apex else 1.0\n\n\ndef switch")
    result = rewrite(source.replace("torch.randn(3, 4)", "torch.randn(3, 4) * noise(opts.from_nvidia)"))
    assert any("still told to have chosen Apex here" in message for message in told(result, "AMP120"))


OUT_OF_SIGHT = PROGRAM.replace('    parser.add_argument("--from_nvidia", type=switch, default=False)\n', "").replace(
    "parser.parse_args(ARGS)", "read_settings()"
)


def test_a_setting_from_out_of_sight_is_one_where_it_is_read_of_one_thing() -> None:
    result = rewrite(OUT_OF_SIGHT)
    assert result.after is not None, result.findings
    assert "from_nvidia" not in result.after


def test_where_it_may_be_another_thing_it_is_told_of() -> None:
    result = rewrite(
        OUT_OF_SIGHT.replace("if self.opts.half and not self.opts", "if self.opts.half and not self.net.kind")
    )
    assert result.after is not None, result.findings
    assert any("still told to have chosen Apex here" in message for message in told(result, "AMP120"))


OTHER = """
class Card:
    def __init__(self, name):
        self.from_nvidia = GIVEN

    def describe(self):
        if self.from_nvidia:
            return "one of theirs"
        return "another one"


class Worker:"""


@pytest.mark.parametrize(("given", "stays"), [('name.startswith("N")', True), ("name.opts.from_nvidia", False)])
def test_a_field_of_that_name_that_is_given_something_else_is_no_such_flag(given: str, stays: bool) -> None:
    program = PROGRAM.replace("ARGS", ASKED).replace("\nclass Worker:", OTHER.replace("GIVEN", given), 1)
    after = rewrite(program).after
    assert after is not None
    assert ("if self.from_nvidia:" in after) is stays
