"""Horovod, executed with a stand-in that reduces over two processes, the other one without gradients."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from amp_migrate.rules.stepping import horovod
from tests.rules.helpers import check_rewrite, rewrite

CLIP = "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.5)"
WRITTEN = ("optimizer.synchronize()", "with optimizer.skip_synchronize():\n            optimizer.step()")


def program(inside: str = "pass", before_step: str = "pass", step: str = "optimizer.step()") -> str:
    return f"""
import horovod.torch as hvd
import torch
from apex import amp


def train(model, loader, criterion):
    hvd.init()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
            {inside}
        {before_step}
        {step}
"""


def distributed(optimizer: torch.optim.Optimizer, events: list[str]) -> torch.optim.Optimizer:
    """An optimizer whose step reduces gradients unless that was done: here, halves them."""
    state = SimpleNamespace(skip=False)
    step = optimizer.step

    def synchronize() -> None:
        events.append("synchronize")
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.mul_(0.5)

    @contextmanager
    def skip_synchronize() -> Iterator[None]:
        state.skip = True
        yield
        state.skip = False

    def step_once(*args: Any, **kwargs: Any) -> Any:
        if not state.skip:
            synchronize()
        events.append("step")
        return step(*args, **kwargs)

    for name, value in (("synchronize", synchronize), ("skip_synchronize", skip_synchronize), ("step", step_once)):
        setattr(optimizer, name, value)
    return optimizer


def run(source: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], torch.Tensor]:
    """What a migrated program does with its gradients, in order, and the weights it ends with."""
    events: list[str] = []
    module = ModuleType("horovod.torch")
    module.init = lambda: None  # type: ignore[attr-defined]
    module.DistributedOptimizer = lambda optimizer: distributed(optimizer, events)  # type: ignore[attr-defined]
    package = ModuleType("horovod")
    package.torch = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "horovod", package)
    monkeypatch.setitem(sys.modules, "horovod.torch", module)
    unscale, clip = torch.amp.GradScaler.unscale_, torch.nn.utils.clip_grad_norm_

    def unscaled(self: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        events.append("unscale")
        unscale(self, optimizer)

    def clipped(*args: Any) -> torch.Tensor:
        events.append("clip")
        return clip(*args)

    monkeypatch.setattr(torch.amp.GradScaler, "unscale_", unscaled)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clipped)
    after = rewrite(source, device="cpu").after
    assert after is not None
    names: dict[str, Any] = {}
    exec(compile(after, "train.py", "exec"), names)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    batches = [(torch.randn(8, 4), torch.randn(8, 2)) for _ in range(3)]
    names["train"](model, batches, torch.nn.functional.mse_loss)
    return events, model.weight.detach().clone()


def reference(clip: bool) -> torch.Tensor:
    """The same training without mixed precision and without Horovod."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in [(torch.randn(8, 4), torch.randn(8, 2)) for _ in range(3)]:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        for p in model.parameters():
            assert p.grad is not None
            p.grad.mul_(0.5)
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return model.weight.detach()


@pytest.mark.parametrize(
    ("source", "order"),
    [
        (program(), ["synchronize", "unscale", "step"]),
        (program(before_step=CLIP), ["synchronize", "unscale", "clip", "step"]),
        (program(WRITTEN[0], "pass", WRITTEN[1]), ["synchronize", "unscale", "step"]),
        (program(WRITTEN[0], CLIP, WRITTEN[1]), ["synchronize", "unscale", "clip", "step"]),
        (program("pass", f"{WRITTEN[0]}; {CLIP}", WRITTEN[1]), ["synchronize", "unscale", "clip", "step"]),
    ],
    ids=["left to the step", "left to the step, clipped", "written", "written, clipped", "written after the with"],
)
def test_gradients_are_reduced_once_and_first(source: str, order: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    events, weight = run(source, monkeypatch)
    assert events == order * 3
    torch.testing.assert_close(weight, reference("clip" in order), rtol=0, atol=2e-3)


def test_the_example_holds() -> None:
    for code in horovod.CODES:
        for example in code.examples:
            check_rewrite(example.before, example.after)


def test_what_is_written_is_not_said_twice() -> None:
    codes = {f.code for f in rewrite(program(*WRITTEN[:1], "pass", WRITTEN[1])).findings}
    assert "AMP225" not in codes
    assert "AMP225" in {f.code for f in rewrite(program()).findings}


@pytest.mark.parametrize(
    "made",
    [
        "if len(loader) > 1:\n        optimizer = hvd.DistributedOptimizer(optimizer)",
        "optimizer = hvd.DistributedOptimizer(optimizer) if len(loader) > 1 else optimizer",
    ],
)
def test_an_optimizer_that_is_horovods_only_sometimes_is_left_to_the_reader(made: str) -> None:
    line = "optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))"
    source = program().replace(line, f"optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    {made}")
    result = rewrite(source)
    assert result.after is not None
    assert "synchronize" not in result.after
    (finding,) = [f for f in result.findings if f.code == "AMP225"]
    assert (finding.status, finding.review) == ("note", "review")


def test_without_horovod_nothing_is_synchronized() -> None:
    after = rewrite(program().replace("horovod.torch", "other.library")).after
    assert after is not None
    assert "synchronize" not in after


def test_in_bfloat16_the_step_is_horovods_own() -> None:
    after = rewrite(program(), dtype="bfloat16").after
    assert after is not None
    assert "synchronize" not in after
    assert "        optimizer.step()\n" in after
