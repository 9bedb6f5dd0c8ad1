"""At O0 a run takes neither side of Apex and torch: what the block of `scale_loss` did there besides scaling, it does still."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.rules.helpers import names_of, rewrite

PROGRAM = """
import importlib

import torch


class Trainer:
    def __init__(self, args, model, optimizer):
        self.args = args
        self.model, self.optimizer = model, optimizer
        self.use_apex = args.fp16 and args.level is not None
        self.use_native = args.fp16 and args.level is None
        if self.use_native:
            self.scaler = torch.amp.GradScaler("cpu")
        elif self.use_apex:
            self.amp = importlib.import_module("apex.amp")
            self.model, self.optimizer = self.amp.initialize(self.model, self.optimizer, opt_level=LEVEL)

    def step(self, batches):
        self.optimizer.zero_grad()
        for j, x in enumerate(batches):
            with torch.autocast("cpu", enabled=self.use_native):
                loss = self.model(x).float().mean()
            last = j == len(batches) - 1
            if self.use_apex:
                with self.amp.scale_loss(loss, self.optimizer, delay_unscale=not last) as scaled:
                    scaled.backward()
                    if last:
                        self.optimizer.synchronize()
            elif self.use_native:
                self.scaler.scale(loss).backward()
                if last:
                    self.optimizer.synchronize()
                    self.scaler.unscale_(self.optimizer)
            else:
                loss.backward()
        if TEST:
            self.optimizer.synchronize()
        with self.optimizer.skip_synchronize():
            if self.use_native:
                self.scaler.step(self.optimizer)
            else:
                self.optimizer.step()
        if self.use_native:
            self.scaler.update()
"""


class Distributed(torch.optim.SGD):
    """An optimizer whose gradients are exchanged, as Horovod's is."""

    exchanged = 0

    def synchronize(self) -> None:
        self.exchanged += 1

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        yield


def exchanges(text: str | None, fp16: bool, level: str | None) -> int:
    names: dict[str, Any] = names_of(text)
    model = torch.nn.Linear(4, 1)
    optimizer = Distributed(model.parameters(), lr=0.1)
    names["Trainer"](SimpleNamespace(fp16=fp16, level=level), model, optimizer).step([torch.ones(2, 4)] * 2)
    return optimizer.exchanged


@pytest.mark.parametrize("test", ["not self.args.fp16", "not self.use_apex and not self.use_native"])
def test_gradients_are_exchanged_once_in_every_run(test: str) -> None:
    result = rewrite(PROGRAM.replace("LEVEL", "self.args.level").replace("TEST", test), device="cpu")
    for fp16, level in ((False, None), (False, "O1"), (True, None), (True, "O1"), (True, "O0")):
        assert exchanges(result.after, fp16, level) == 1, (fp16, level)
    assert not {"AMP532", "AMP119"} & {f.code for f in result.findings}  # what set the flag went with its reads


def test_a_level_that_is_never_o0_leaves_the_test() -> None:
    result = rewrite(PROGRAM.replace("LEVEL", '"O1"').replace("TEST", "not self.args.fp16"), device="cpu")
    assert result.after is not None
    assert "if not self.args.fp16:" in result.after


def test_what_no_run_at_o0_does_is_told() -> None:
    """The plain side is asked for in words of its own."""
    program = PROGRAM.replace("LEVEL", "self.args.level").replace("TEST", "self.args.fp16 is False")
    result = rewrite(program, device="cpu")
    told = [f for f in result.findings if f.code == "AMP532"]
    assert exchanges(result.after, True, "O0") == 0
    assert [f.review for f in told] == ["review"]
    assert "self.optimizer.synchronize()" in told[0].message
