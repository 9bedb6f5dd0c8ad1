"""Programs that are run, before and after: the original with an Apex that does nothing, in float32; the migrated one with
a real GradScaler on the CPU. What clips and readers of gradients saw must agree up to the rounding of float16."""

from __future__ import annotations

import contextlib
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch

from tests.rules.helpers import rewrite

PRELUDE = """
import torch
from torch.nn.utils import clip_grad_norm_
from apex import amp

torch.manual_seed(0)
seen = []


def build():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def grad_norm(model):
    return sum(p.grad.norm() ** 2 for p in model.parameters()).item() ** 0.5


def criterion(output, target):
    return ((output - target) ** 2).mean() / 10


loader = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(6)]
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def _apex() -> ModuleType:
    @contextlib.contextmanager
    def scale_loss(loss: Any, optimizers: Any, **options: Any) -> Iterator[Any]:
        yield loss

    def master_params(optimizer: Any) -> Iterator[Any]:
        return (p for group in optimizer.param_groups for p in group["params"])

    amp = ModuleType("apex.amp")
    amp.__dict__.update(
        initialize=lambda model, optimizer, **options: (model, optimizer),
        scale_loss=scale_loss,
        master_params=master_params,
    )
    apex = ModuleType("apex")
    apex.__dict__["amp"] = amp
    return apex


def run(source: str) -> tuple[list[float], list[torch.Tensor]]:
    """The norms that clips of a program returned, with what it saw, and the weights it ends with."""
    norms, seen, weights = _run(source)
    return norms + seen, weights


def _run(source: str) -> tuple[list[float], list[float], list[torch.Tensor]]:
    norms: list[float] = []
    clip = torch.nn.utils.clip_grad_norm_

    def recording(parameters: Any, max_norm: float, **options: Any) -> torch.Tensor:
        norm = clip(parameters, max_norm, **options)
        norms.append(float(norm))
        return norm

    space: dict[str, Any] = {"__name__": "train"}
    with mock.patch.object(torch.nn.utils, "clip_grad_norm_", recording):
        exec(compile(source, "train.py", "exec"), space)
    models = [v for v in space.values() if isinstance(v, torch.nn.Module)]
    weights = [p.detach() for m in models for p in m.parameters()]
    return norms, [float(v) for v in space["seen"]], weights


def check_trained(program: str, *, norms_scaled: bool = False) -> str:
    """Assert that a program is migrated whole and trains as it did; the result's text.

    `program` follows `PRELUDE`; what it appends to `seen` is compared, besides the norms that clips returned, unless these
    are `norms_scaled`: those of gradients that carry the scale.
    """
    source = PRELUDE + textwrap.dedent(program)
    result = rewrite(source, device="cpu")
    assert not [f for f in result.findings if f.status == "manual"], result.findings
    assert result.after is not None
    sys.modules["apex"] = _apex()
    try:
        norms, seen, weights = _run(source)
    finally:
        del sys.modules["apex"]
    assert norms or seen
    migrated_norms, migrated_seen, migrated_weights = _run(result.after)
    assert len(migrated_norms) == len(norms)
    if not norms_scaled:
        assert migrated_norms == pytest.approx(norms, rel=2e-2, nan_ok=True), (migrated_norms, norms, result.after)
    assert migrated_seen == pytest.approx(seen, rel=2e-2, nan_ok=True), (migrated_seen, seen, result.after)
    assert len(migrated_weights) == len(weights)
    for mine, theirs in zip(migrated_weights, weights, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-3)
    again = rewrite(result.after, device="cpu")
    assert again.after is None
    return result.after
