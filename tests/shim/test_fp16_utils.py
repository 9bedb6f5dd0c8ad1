"""`apex.fp16_utils`: casting networks, master copies, FP16_Optimizer, the old loss scalers."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from amp_testing import apex, fresh_amp
from apex import fp16_utils
from apex.fp16_utils import (
    BN_convert_float,
    DynamicLossScaler,
    FP16_Optimizer,
    FP16Model,
    LossScaler,
    convert_module,
    convert_network,
    master_params_to_model_params,
    model_grads_to_master_grads,
    network_to_half,
    prep_param_lists,
    to_python_float,
    tofp16,
)
from torch import nn


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    with fresh_amp(), warnings.catch_warnings():
        warnings.simplefilter("ignore", apex.DeprecatedFeatureWarning)
        yield


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2))


def dtypes(model: nn.Module) -> list[torch.dtype]:
    return [p.dtype for p in model.parameters()]


MIXED = [torch.float16, torch.float16, torch.float32, torch.float32, torch.float16, torch.float16]
X = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))


def test_star_import_gives_the_helpers() -> None:
    names: dict[str, Any] = {}
    exec("from apex.fp16_utils import *", names)
    exec("from apex.fp16_utils.fp16util import *", names)
    exec("from apex.fp16_utils.loss_scaler import LossScaler, DynamicLossScaler, to_python_float", names)
    assert names["to_python_float"] is to_python_float
    assert names["clip_grad_norm"] is torch.nn.utils.clip_grad_norm_


def test_network_to_half() -> None:
    half = network_to_half(network())
    assert isinstance(half, nn.Sequential)
    assert isinstance(half[0], tofp16)
    assert dtypes(half) == MIXED
    assert half[0](X).dtype == torch.float16


def test_bn_convert_float_restores_affine_batch_norm() -> None:
    model = network().half()
    assert BN_convert_float(model) is model
    assert dtypes(model) == MIXED
    assert model[1].running_mean.dtype == torch.float32
    assert model[2].running_mean.dtype == torch.float16


def test_convert_network_casts_gradients_and_leaves_integers() -> None:
    model = network()
    model(X).sum().backward()
    convert_network(model, torch.float16)
    assert dtypes(model) == MIXED
    assert model[0].weight.grad.dtype == torch.float16
    assert model[2].num_batches_tracked.dtype == torch.int64
    convert_module(model, torch.float64)
    assert dtypes(model) == MIXED, "convert_module does not look into children"


def test_fp16_model() -> None:
    with pytest.warns(apex.DeprecatedFeatureWarning, match="fp16_utils"):
        model = FP16Model(nn.Linear(4, 2))
    assert model(X).dtype == torch.float16
    assert dtypes(model.network) == [torch.float16, torch.float16]


@pytest.mark.parametrize("flat", [False, True])
def test_master_copies_round_trip(flat: bool) -> None:
    model = nn.Linear(4, 2).half()
    frozen = nn.Parameter(torch.zeros(1).half(), requires_grad=False)
    model.register_parameter("frozen", frozen)
    params, masters = prep_param_lists(model, flat_master=flat)
    assert len(params) == 2
    assert [m.dtype for m in masters] == [torch.float32] * (1 if flat else 2)
    assert all(m.requires_grad and m.is_leaf for m in masters)
    model(X.half()).float().sum().backward()
    model_grads_to_master_grads(params, masters, flat_master=flat)
    expected = torch.cat([p.grad.float().reshape(-1) for p in params if p.grad is not None])
    assert torch.equal(torch.cat([m.grad.reshape(-1) for m in masters if m.grad is not None]), expected)
    with torch.no_grad():
        for master in masters:
            master.add_(1.0)
    before = [p.clone() for p in params]
    master_params_to_model_params(params, masters, flat_master=flat)
    for param, old in zip(params, before, strict=True):
        torch.testing.assert_close(param.detach(), old.detach() + 1)


def test_missing_model_gradient_clears_the_masters() -> None:
    params, masters = prep_param_lists(nn.Linear(4, 2).half())
    masters[0].grad = torch.ones_like(masters[0])
    model_grads_to_master_grads(params, masters)
    assert masters[0].grad is None


def test_flat_master_of_mixed_types() -> None:
    model = convert_network(network(), torch.float16)
    params, (master,) = prep_param_lists(model, flat_master=True)
    assert master.dtype == torch.float32
    with torch.no_grad():
        master.zero_()
    master_params_to_model_params(params, [master], flat_master=True)
    assert all(not p.any() for p in model.parameters())
    assert dtypes(model) == MIXED


def test_to_python_float() -> None:
    assert to_python_float(torch.tensor([2.5])) == 2.5
    assert to_python_float([3.0]) == 3.0


def test_static_loss_scaler() -> None:
    with pytest.warns(apex.DeprecatedFeatureWarning):
        scaler = LossScaler(8.0)
    weight = torch.ones(1, requires_grad=True)
    scaler.backward(weight.sum())
    assert weight.grad is not None
    assert weight.grad.item() == 8.0
    scaler.update_scale(True)
    assert scaler.loss_scale == 8.0
    assert not scaler.has_overflow([weight])
    assert scaler.scale_gradient(None, (torch.ones(1),), ())[0].item() == 8.0


def test_dynamic_loss_scaler() -> None:
    scaler = DynamicLossScaler()
    assert scaler.loss_scale == 2**32
    scaler = DynamicLossScaler(init_scale=4.0, scale_factor=4.0, scale_window=3)
    seen = []
    for overflow in (False, False, False, False, True, True, True, False, False, False):
        scaler.update_scale(overflow)
        seen.append(scaler.loss_scale)
    assert seen == [4.0, 4.0, 16.0, 16.0, 4.0, 1.0, 1.0, 1.0, 1.0, 4.0], "never below 1"
    weight = torch.ones(1, requires_grad=True)
    assert not scaler.has_overflow([weight])
    weight.grad = torch.tensor([float("nan")])
    assert scaler.has_overflow([weight])


def wrapped(**options: Any) -> tuple[nn.Module, FP16_Optimizer]:
    model = convert_network(network(), torch.float16)
    options.setdefault("verbose", False)
    return model, FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), **options)


def loss_of(model: nn.Module) -> torch.Tensor:
    x = X.half()
    for layer in model.children():
        x = layer(x.to(next((p.dtype for p in layer.parameters()), torch.float16))).half()
    return x.float().pow(2).mean()


def test_fp16_optimizer_warns_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(apex.DeprecatedFeatureWarning):
        wrapped(verbose=True)
    out = capsys.readouterr().out
    assert "deprecated" in out
    assert "HalfTensor" in out


def test_fp16_optimizer_trains() -> None:
    model, optimizer = wrapped(static_loss_scale=128.0)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = loss_of(model)
        losses.append(loss.item())
        optimizer.backward(loss)
        optimizer.step()
    assert losses[-1] < losses[0]
    assert dtypes(model) == MIXED
    assert torch.equal(model[0].weight, optimizer.fp32_from_fp16_groups[0][0].half())


def test_fp16_optimizer_unscales_fp16_and_fp32_gradients() -> None:
    torch.manual_seed(0)
    model, optimizer = wrapped(static_loss_scale=64.0)
    optimizer.backward(loss_of(model))
    torch.manual_seed(0)
    reference, plain = wrapped()
    plain.backward(loss_of(reference))
    data, expected = optimizer.inspect_master_grad_data(), plain.inspect_master_grad_data()
    assert data is not None
    assert expected is not None
    torch.testing.assert_close(data[0], expected[0], rtol=1e-2, atol=1e-4)


def test_fp16_optimizer_delayed_update() -> None:
    model, optimizer = wrapped(static_loss_scale=8.0)
    optimizer.backward(loss_of(model), update_master_grads=False)
    assert optimizer.all_fp32_from_fp16_params[0].grad is None
    optimizer.update_master_grads()
    assert optimizer.all_fp32_from_fp16_params[0].grad is not None


def test_fp16_optimizer_overflow() -> None:
    model, optimizer = wrapped(dynamic_loss_scale=True, dynamic_loss_args={"init_scale": 1024.0, "scale_window": 2})
    before = [p.clone() for p in model.parameters()]
    optimizer.backward(loss_of(model) * float("inf"))
    assert optimizer.overflow
    assert optimizer.loss_scale == 512.0
    assert optimizer.clip_master_grads(1.0) == -1
    assert optimizer.inspect_master_grad_data() is None
    assert optimizer.step() is None
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    for _ in range(2):
        optimizer.zero_grad(set_grads_to_None=True)
        optimizer.backward(loss_of(model))
    assert optimizer.loss_scale == 1024.0
    assert float(optimizer.clip_master_grads(1e-3)) > 1e-3
    data = optimizer.inspect_master_grad_data()
    assert data is not None
    assert torch.cat([g.reshape(-1) for g in data[0] if g is not None]).norm() <= 1.1e-3


def test_fp16_optimizer_closure() -> None:
    model, optimizer = wrapped(static_loss_scale=8.0)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        optimizer.backward(loss)
        return loss

    first = optimizer.step(closure)
    assert optimizer.step(closure) < first


def test_fp16_optimizer_closure_evaluated_several_times_per_step() -> None:
    model = nn.Linear(4, 1, bias=False).half()
    optimizer = FP16_Optimizer(torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3), verbose=False)
    seen: list[list[float]] = []

    def closure() -> torch.Tensor:
        seen.append(model.weight.flatten().tolist())
        optimizer.zero_grad()
        loss = (model(X.half()).float() - 1).pow(2).mean()
        optimizer.backward(loss)
        return loss

    optimizer.step(closure)
    assert len({tuple(weights) for weights in seen}) == len(seen) > 1, "each evaluation sees the moved weights"
    with torch.no_grad():
        model.weight.fill_(0.25)
    seen.clear()
    optimizer.step(closure)
    assert seen[0] == [0.25] * 4, "the first one of a step takes the model as it is"


def test_fp16_optimizer_round_trip_keeps_the_masters_exactly() -> None:
    model, optimizer = wrapped(dynamic_loss_scale=True, dynamic_loss_args={"init_scale": 256.0})
    optimizer.backward(loss_of(model))
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=False)
    twin, twin_optimizer = wrapped()
    twin.load_state_dict(saved["model"])
    twin_optimizer.load_state_dict(saved["optimizer"])
    assert twin_optimizer.loss_scale == 256.0
    masters = zip(optimizer.all_fp32_from_fp16_params, twin_optimizer.all_fp32_from_fp16_params, strict=True)
    assert all(torch.equal(a, b) for a, b in masters)
    for trained, opt in ((model, optimizer), (twin, twin_optimizer)):
        opt.zero_grad()
        opt.backward(loss_of(trained))
        opt.step()
    assert torch.equal(model[0].weight, twin[0].weight)
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(optimizer)


def test_fp16_optimizer_promotes_attributes() -> None:
    _, optimizer = wrapped()
    optimizer.param_groups[0]["lr"] = 0.5
    assert optimizer.optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.state is optimizer.optimizer.state
    optimizer.loss_scale = 2.0
    assert optimizer.loss_scaler.loss_scale() == 2.0


def test_fp16_optimizer_refuses_other_types() -> None:
    with pytest.raises(TypeError, match=r"torch\.cuda\.DoubleTensor"):
        FP16_Optimizer(
            torch.optim.SGD([torch.zeros(1, dtype=torch.float64, requires_grad=True)], lr=0.1), verbose=False
        )


def test_the_package_offers_what_apex_offered() -> None:
    assert set(fp16_utils.__all__) >= {"FP16_Optimizer", "FP16Model", "clip_grad_norm", "prep_param_lists"}
