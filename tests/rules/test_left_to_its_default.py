"""A call that leaves out what handed `amp` over, though it is given options that are not written one by one, needs no scaler: its
function is called as before, also by code that no call in sight shows."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files, texts_of

BASE = """
import torch


def make_handle(args):
    if args.fp16:
        from apex import amp
        return amp.init(enabled=True)
    return None


class Base:
    def __init__(self, model, handle=None, lr=0.1, fp16=False, **others):
        self.handle = handle
        self.fp16 = fp16
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        if self.fp16:
            self.optimizer = self.handle.wrap_optimizer(self.optimizer)

    def epoch(self, loader):
        for x in loader:
            loss = self.model(x).sum()
            self.optimizer.zero_grad()
            if self.fp16:
                with self.optimizer.scale_loss(loss) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            self.optimizer.step()
"""
PROGRAM = """
import argparse

import torch
from base import Base, make_handle


def train(argv):
    parser = argparse.ArgumentParser()
    {option}
    args = parser.parse_args(argv)
    {prepare}
    Base(torch.nn.Linear(2, 2), {given}).epoch([torch.ones(2)])
"""
ONE = PROGRAM.format(
    option='parser.add_argument("--fp16", action="store_true")',
    prepare="handle = make_handle(args)",
    given="handle, **vars(args)",
)
LR = 'parser.add_argument("--lr", type=float, default=0.1)'


def changed(option: str, prepare: str, given: str) -> str | None:
    """What becomes of a program that makes no handle, beside one that does."""
    two = PROGRAM.format(option=option, prepare=prepare, given=given)
    results = rewrite_files({"base.py": BASE, "one.py": ONE, "two.py": two})
    assert "Base(torch.nn.Linear(2, 2), scaler, **vars(args))" in texts_of(results)["one.py"]
    assert "scaler is None" in texts_of(results)["base.py"]
    return results["two.py"].after if "two.py" in results else None


@pytest.mark.parametrize("given", ["**vars(args)", "**args.__dict__", "lr=0.2, **vars(args)", "lr=args.lr"])
def test_options_among_which_there_is_none(given: str) -> None:
    assert changed(LR, "pass", given) is None


@pytest.mark.parametrize(
    ("option", "prepare"),
    [
        ('parser.add_argument("--handle")', "pass"),
        ("parser.set_defaults(handle=3)", "pass"),
        (LR, "args.handle = make_handle(args)"),
    ],
)
def test_options_among_which_there_may_be_one(option: str, prepare: str) -> None:
    assert "scaler=scaler, **vars(args))" in (changed(option, prepare, "**vars(args)") or "")
