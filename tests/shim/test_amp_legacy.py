"""Apex's first interface: `amp.init`, the handle, and the wrapped optimizer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from amp_testing import amp, apex, fresh_amp, sgd
from torch import nn


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    with fresh_amp(), warnings.catch_warnings():
        warnings.simplefilter("ignore", apex.DeprecatedFeatureWarning)
        yield


def test_init_installs_the_casts_and_needs_no_initialize() -> None:
    handle = amp.init()
    assert handle.is_active()
    assert not handle.verbose
    assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.float16


def test_handle_scale_loss_is_withdrawn() -> None:
    layer = nn.Linear(2, 2)
    handle = amp.init()
    block = handle.scale_loss(torch.ones(1), sgd(layer))
    with pytest.raises(RuntimeError, match=r"old Amp API .* no longer supported"):
        block.__enter__()


def test_disabled_init_does_nothing() -> None:
    layer = nn.Linear(2, 2)
    optimizer = sgd(layer)
    handle = amp.init(enabled=False)
    assert not handle.is_active()
    assert not handle.has_cache
    assert layer(torch.ones(2)).dtype == torch.float32
    loss = layer(torch.ones(2)).sum()
    with handle.scale_loss(loss, optimizer) as scaled:
        assert scaled is loss
    wrapped = handle.wrap_optimizer(optimizer)
    with wrapped.scale_loss(loss) as scaled:
        scaled.backward()
    before = layer.weight.clone()
    wrapped.step()
    assert not torch.equal(layer.weight, before)
    handle._clear_cache()
    handle._deactivate()


def test_wrapped_optimizer_trains() -> None:
    layer = nn.Linear(2, 1, bias=False)
    wrapped = amp.init().wrap_optimizer(sgd(layer))
    loss = layer(torch.ones(1, 2)).float().sum() / 4
    with wrapped.scale_loss(loss) as scaled:
        assert scaled.item() == loss.item() * 65536
        scaled.backward()
    assert layer.weight.grad.tolist() == [[0.25, 0.25]]
    before = layer.weight.detach().clone()
    wrapped.step()
    torch.testing.assert_close(layer.weight.detach(), before - 0.025)


def test_wrapped_optimizer_with_two_losses() -> None:
    layer = nn.Linear(2, 1, bias=False)
    wrapped = amp.init().wrap_optimizer(sgd(layer), num_loss=2)
    for factor in (0.25, 0.5):
        with wrapped.scale_loss(layer(torch.ones(1, 2)).float().sum() * factor) as scaled:
            scaled.backward()
    assert layer.weight.grad.tolist() == [[0.75, 0.75]]
    with pytest.raises(AssertionError, match="num_loss=2"), wrapped.scale_loss(torch.ones(1)):
        pass


def test_wrapped_optimizer_skips_on_overflow_and_refuses_closures() -> None:
    layer = nn.Linear(2, 1, bias=False)
    wrapped = amp.init().wrap_optimizer(sgd(layer))
    before = layer.weight.detach().clone()
    with wrapped.scale_loss(layer(torch.ones(1, 2)).float().sum() * float("inf")) as scaled:
        scaled.backward()
    assert wrapped.step() is None
    assert torch.equal(layer.weight, before)
    with pytest.raises(NotImplementedError, match="closure"):
        wrapped.step(lambda: None)


def test_wrapped_optimizer_stands_in_for_the_optimizer() -> None:
    optimizer = sgd(nn.Linear(2, 1), momentum=0.5)
    wrapped = amp.init().wrap_optimizer(optimizer)
    assert wrapped.param_groups is optimizer.param_groups
    assert wrapped.state_dict() == optimizer.state_dict()
    assert repr(wrapped) == repr(optimizer)


def test_step_drops_cached_weights() -> None:
    layer = nn.Linear(2, 1)
    handle = amp.init()
    wrapped = handle.wrap_optimizer(sgd(layer))
    with wrapped.scale_loss(layer(torch.ones(1, 2)).float().sum()) as scaled:
        scaled.backward()
    assert layer.weight in handle.cache
    wrapped.step()
    assert layer.weight not in handle.cache
