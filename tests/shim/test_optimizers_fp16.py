"""The FP16_Optimizer of apex.optimizers: FusedAdam over half weights, unscaled and clipped in its step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from amp_testing import apex, fresh_amp
from apex import optimizers
from apex.optimizers import FusedAdam


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with fresh_amp(), warnings.catch_warnings():
        warnings.simplefilter("ignore", apex.DeprecatedFeatureWarning)
        yield


def wrapped(limit: float = 1.0, **options: Any) -> tuple[list[torch.nn.Parameter], Any]:
    """Two groups of half parameters under the FP16_Optimizer of FusedAdam."""
    shapes = [(3, 4), (5,), (2, 1, 3)]
    params = [torch.nn.Parameter(torch.ones(shape, dtype=torch.float16)) for shape in shapes]
    groups = [{"params": params[:1]}, {"params": params[1:]}]
    fused = FusedAdam(groups, lr=0.1, bias_correction=False, max_grad_norm=limit)
    return params, optimizers.FP16_Optimizer(fused, verbose=False, **options)


def test_each_group_is_limited_by_itself_however_often_a_backward_ran() -> None:
    params, optimizer = wrapped(dynamic_loss_scale=True)
    for factor in (1.0, 2.0):  # two backwards of one step
        optimizer.backward(sum((p.float() * factor * (0.3 if p is params[0] else 0.01)).sum() for p in params))
    assert all(p.grad is not None and p.grad.abs().max() > 1000 for p in params)  # scaled until the step
    optimizer.step()
    first, second = optimizer.param_groups
    norms = [math.sqrt(sum(float((m.grad**2).sum()) for m in g["params"])) for g in (first, second)]
    assert norms[0] == pytest.approx(1.0, rel=1e-3)
    assert norms[1] == pytest.approx(0.03 * math.sqrt(sum(p.numel() for p in params[1:])), rel=1e-3)  # below its limit
    assert optimizer.loss_scale == 65536
    optimizer.zero_grad()
    assert all(p.grad is None for p in params)


@pytest.mark.parametrize(
    ("options", "scale"), [({"dynamic_loss_scale": True}, 32768.0), ({"static_loss_scale": 128.0}, 128.0)]
)
def test_a_step_that_overflows_is_skipped(options: dict[str, Any], scale: float) -> None:
    params, optimizer = wrapped(**options)
    before = [p.detach().clone() for p in params]
    optimizer.backward(sum((p.float() * float("inf")).sum() for p in params))
    optimizer.step()
    assert all(torch.equal(p, b) for p, b in zip(params, before, strict=True))
    assert optimizer.loss_scale == scale
    optimizer.zero_grad()
    optimizer.backward(sum(p.float().sum() for p in params))
    optimizer.step()
    assert not any(torch.equal(p, b) for p, b in zip(params, before, strict=True))


def test_the_wrapper_takes_what_it_always_took() -> None:
    with pytest.raises(SystemError, match="dynamic loss scale args"):
        wrapped(dynamic_loss_scale=True, dynamic_loss_args={"init_scale": 2.0})
    params, optimizer = wrapped()
    with pytest.raises(TypeError, match="takes no scale"):
        optimizers.FP16_Optimizer(torch.optim.SGD(params, lr=0.1))
    with pytest.raises(TypeError, match="no closure"):
        optimizer.step(lambda: 0.0)
