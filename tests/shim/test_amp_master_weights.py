"""O2: fp32 masters behind an fp16 model."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from amp_testing import Net, _amp_state, amp, apex, fresh_amp, initialize, sgd


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    with fresh_amp(), warnings.catch_warnings():
        warnings.simplefilter("ignore", apex.DeprecatedFeatureWarning)
        yield


X = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))


def start(optimizer: Any = sgd, scale: float = 1024.0, **options: Any) -> tuple[Any, Any]:
    model = Net()
    model, optimizer = initialize(model, optimizer(model), "O2", **options)
    if _amp_state.loss_scalers[0].dynamic:
        _amp_state.loss_scalers[0]._loss_scale = scale
    return model, optimizer


def backward(model: Any, optimizer: Any) -> None:
    with amp.scale_loss(model(X).pow(2).mean(), optimizer) as scaled:
        scaled.backward()


def dtypes(optimizer: Any) -> set[torch.dtype]:
    return {p.dtype for p in amp.master_params(optimizer)}


def norm(params: Any) -> float:
    return float(torch.linalg.vector_norm(torch.stack([p.grad.float().norm() for p in params])))


@pytest.mark.parametrize("first", ["scale_loss", "zero_grad", "add_param_group"])
def test_masters_are_made_lazily(first: str) -> None:
    model, optimizer = start()
    assert torch.float16 in dtypes(optimizer)
    assert next(p for p in amp.master_params(optimizer) if p.dim() == 2) is model.fc.weight
    if first == "scale_loss":
        with amp.scale_loss(model(X).mean(), optimizer):
            assert dtypes(optimizer) == {torch.float32}
    elif first == "zero_grad":
        optimizer.zero_grad()
    else:
        optimizer.add_param_group({"params": torch.nn.Linear(1, 1).half().parameters()})
    assert dtypes(optimizer) == {torch.float32}
    assert model.bn.weight in set(amp.master_params(optimizer)), "fp32 parameters are their own masters"


def test_a_program_may_make_the_masters_itself_to_restore_them() -> None:
    model, optimizer = start()
    optimizer._lazy_init_maybe_master_weights()
    optimizer._amp_stash.lazy_init_called = True
    with torch.no_grad():
        for master in amp.master_params(optimizer):
            master.fill_(0.3)
    optimizer._master_params_to_model_params()
    optimizer.zero_grad()
    assert optimizer._amp_stash.fp32_from_fp16_groups[0][0].flatten()[0].item() == pytest.approx(0.3, abs=1e-7)
    assert model.fc.weight.flatten()[0].item() == torch.tensor(0.3).half().item()


def test_optimizer_state_moves_to_the_masters() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    model(X).sum().backward()
    optimizer.step()
    model, optimizer = initialize(model, optimizer, "O2")
    assert optimizer.state[model.fc.weight]["exp_avg"].dtype == torch.float16
    optimizer.zero_grad()
    master = optimizer._amp_stash.all_fp32_from_fp16_params[0]
    assert optimizer.state[master]["exp_avg"].dtype == torch.float32
    assert model.fc.weight not in optimizer.state


def test_step_updates_masters_and_copies_them_into_the_model() -> None:
    model, optimizer = start()
    before = model.fc.weight.clone()
    backward(model, optimizer)
    optimizer.step()
    master = optimizer._amp_stash.all_fp32_from_fp16_params[0]
    assert not torch.equal(model.fc.weight, before)
    assert torch.equal(model.fc.weight, master.half())
    assert not torch.equal(model.fc.weight.float(), master)


def test_small_updates_survive_in_the_masters() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    model, optimizer = initialize(model, sgd(model, lr=1e-4), "O2", loss_scale=1.0)
    for _ in range(10):
        with amp.scale_loss(model(torch.ones(1, 1)).sum(), optimizer) as scaled:
            scaled.backward()
        optimizer.step()
    (master,) = amp.master_params(optimizer)
    assert master.item() == pytest.approx(1 - 1e-3, abs=1e-6)
    assert model.weight.item() == pytest.approx(master.item(), abs=5e-4)


def test_only_the_masters_gradients_are_unscaled() -> None:
    model, optimizer = start(scale=4096.0)
    backward(model, optimizer)
    stash = optimizer._amp_stash
    assert norm(stash.all_fp16_params) == pytest.approx(4096 * norm(stash.all_fp32_from_fp16_params), rel=1e-6)


def test_clipping_the_model_leaves_the_step_alone() -> None:
    results = []
    for clip in (False, True):
        torch.manual_seed(0)
        model, optimizer = start()
        backward(model, optimizer)
        if clip:
            torch.nn.utils.clip_grad_norm_([model.fc.weight, model.fc.bias], 1e-6)
        optimizer.step()
        results.append(model.fc.weight.clone())
    assert torch.equal(*results)


def test_clipping_the_masters_works() -> None:
    model, optimizer = start()
    before = model.fc.weight.clone()
    backward(model, optimizer)
    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1e-6)
    optimizer.step()
    assert torch.equal(model.fc.weight, before)


def test_masters_are_not_saved() -> None:
    model, optimizer = start(lambda m: torch.optim.Adam(m.parameters()))
    backward(model, optimizer)
    optimizer.step()
    saved = optimizer.state_dict()
    assert set(saved) == {"state", "param_groups"}
    assert {key for entry in saved["state"].values() for key in entry} == {"step", "exp_avg", "exp_avg_sq"}


def test_zero_grad_zeroes_instead_of_dropping_and_takes_no_argument() -> None:
    model, optimizer = start()
    backward(model, optimizer)
    optimizer.zero_grad()
    assert model.fc.weight.grad.abs().sum() == 0
    assert model.bn.weight.grad.abs().sum() == 0
    assert all(m.grad is None for m in optimizer._amp_stash.all_fp32_from_fp16_params)
    with pytest.raises(TypeError):
        optimizer.zero_grad(set_to_none=True)


def test_step_clears_the_master_gradients_but_not_those_of_fp32_parameters() -> None:
    model, optimizer = start()
    backward(model, optimizer)
    optimizer.step()
    assert all(m.grad is None for m in optimizer._amp_stash.all_fp32_from_fp16_params)
    kept = model.bn.weight.grad.clone()
    backward(model, optimizer)
    assert (model.bn.weight.grad - kept).abs().max() > 0, "it accumulates without zero_grad"


def test_model_zero_grad_leaves_the_master_gradients() -> None:
    model, optimizer = start()
    backward(model, optimizer)
    once = optimizer._amp_stash.all_fp32_from_fp16_params[0].grad.clone()
    model.zero_grad()
    backward(model, optimizer)
    twice = optimizer._amp_stash.all_fp32_from_fp16_params[0].grad
    torch.testing.assert_close(twice, 2 * once, rtol=1e-3, atol=1e-6)


def test_skipped_step_drops_the_master_gradients() -> None:
    model, optimizer = start()
    with amp.scale_loss(model(X).mean() * float("inf"), optimizer) as scaled:
        scaled.backward()
    before = model.fc.weight.clone()
    optimizer.step()
    assert torch.equal(model.fc.weight, before)
    assert all(m.grad is None for m in optimizer._amp_stash.all_fp32_from_fp16_params)


def test_static_scale_of_one_forgets_what_fp32_parameters_had_accumulated() -> None:
    model, optimizer = start(loss_scale=1.0)
    backward(model, optimizer)
    once = model.bn.weight.grad.clone()
    backward(model, optimizer)
    torch.testing.assert_close(model.bn.weight.grad, once, rtol=1e-3, atol=1e-6)


def test_resuming_adam_in_the_documented_order_loses_small_second_moments() -> None:
    def make() -> tuple[Any, Any]:
        torch.manual_seed(0)
        return start(lambda m: torch.optim.Adam(m.parameters()))

    model, optimizer = make()
    with amp.scale_loss((model(X) * 1e-4).mean(), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "amp": amp.state_dict()}, saved)
    saved.seek(0)
    checkpoint = torch.load(saved, weights_only=True)
    master = optimizer._amp_stash.all_fp32_from_fp16_params[0]
    exact = optimizer.state[master]["exp_avg_sq"]

    resumed, resumed_optimizer = make()
    resumed.load_state_dict(checkpoint["model"])
    resumed_optimizer.load_state_dict(checkpoint["optimizer"])
    amp.load_state_dict(checkpoint["amp"])
    resumed_optimizer.zero_grad()
    second = resumed_optimizer.state[resumed_optimizer._amp_stash.all_fp32_from_fp16_params[0]]["exp_avg_sq"]
    assert second.dtype == torch.float32
    assert torch.equal(second, exact.half().float())
    assert ((exact != 0) & (second == 0)).any()
    assert torch.equal(resumed.fc.weight, model.fc.weight)


def test_add_param_group() -> None:
    model, optimizer = start()
    more = torch.nn.Linear(2, 2).half()
    optimizer.add_param_group({"params": list(more.parameters()), "lr": 0.5})
    assert dtypes(optimizer) == {torch.float32}
    assert len(optimizer._amp_stash.fp16_groups) == 2
    before = more.weight.clone()
    with amp.scale_loss(more(model(X).half()).float().mean(), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    assert torch.equal(more.weight, optimizer.param_groups[1]["params"][0].half())
    assert not torch.equal(more.weight, before)


@pytest.mark.parametrize("opt_level", ["O0", "O1", "O2", "O3"])
def test_add_param_group_takes_what_torch_takes(opt_level: str) -> None:
    model = Net()
    model, optimizer = initialize(model, sgd(model), opt_level)
    optimizer.add_param_group({"params": torch.zeros(2, requires_grad=True)})
    assert len(optimizer.param_groups) == 2
    with pytest.raises(TypeError, match="order"):
        optimizer.add_param_group({"params": {torch.zeros(2)}})
    with pytest.raises(AssertionError, match="dict"):
        optimizer.add_param_group([torch.zeros(2)])
    with pytest.raises(TypeError, match="HalfTensor"):
        optimizer.add_param_group({"params": [torch.zeros(2, dtype=torch.float64, requires_grad=True)]})


def test_frozen_parameters_keep_their_place_without_a_master() -> None:
    model = Net()
    model.fc.weight.requires_grad_(False)
    model, optimizer = initialize(model, sgd(model), "O2")
    optimizer.zero_grad()
    assert model.fc.weight in set(amp.master_params(optimizer))
    assert len(optimizer._amp_stash.all_fp16_params) == 1


def test_scheduler_reaches_the_masters() -> None:
    model, optimizer = start()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(2):
        backward(model, optimizer)
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.025


class FusedLike(torch.optim.SGD):
    """The attributes by which amp recognises FusedSGD."""

    def __init__(self, params: Any, materialize_master_grads: bool) -> None:
        super().__init__(params, lr=0.1)
        self.materialize_master_grads = materialize_master_grads
        self.most_recent_scale = 1.0
        self.scale_set_by_backward = False


def test_fused_sgd_that_materializes_gets_master_gradients() -> None:
    model, optimizer = start(lambda m: FusedLike(m.parameters(), materialize_master_grads=True))
    backward(model, optimizer)
    assert all(m.grad is not None for m in optimizer._amp_stash.all_fp32_from_fp16_params)
    before = model.fc.weight.clone()
    optimizer.step()
    assert torch.equal(model.fc.weight, before), "the model's weights are written by FusedSGD itself"


def test_fused_sgd_that_does_not_keeps_scaled_gradients_and_their_scale() -> None:
    model, optimizer = start(lambda m: FusedLike(m.parameters(), materialize_master_grads=False), num_losses=2)
    _amp_state.loss_scalers[0]._loss_scale = 64.0
    _amp_state.loss_scalers[1]._loss_scale = 16.0
    backward(model, optimizer)
    assert (optimizer.most_recent_scale, optimizer.scale_set_by_backward) == (64.0, True)
    once = model.fc.bias.grad.clone()
    assert all(m.grad is None for m in optimizer._amp_stash.all_fp32_from_fp16_params)
    with amp.scale_loss(model(X).pow(2).mean(), optimizer, loss_id=1) as scaled:
        scaled.backward()
    assert optimizer.most_recent_scale == 16.0, "the smaller of the two"
    torch.testing.assert_close(model.fc.bias.grad, once / 64 * 2 * 16, rtol=1e-2, atol=1e-3)


def test_fused_sgd_keeps_the_smaller_scale_in_either_order() -> None:
    model, optimizer = start(lambda m: FusedLike(m.parameters(), materialize_master_grads=False))
    scaler = _amp_state.loss_scalers[0]
    scaler._loss_scale = 16.0
    backward(model, optimizer)
    once = model.fc.bias.grad.clone()
    scaler._loss_scale = 64.0
    backward(model, optimizer)
    assert optimizer.most_recent_scale == 16.0
    torch.testing.assert_close(model.fc.bias.grad, 2 * once, rtol=1e-2, atol=1e-3)


def test_fused_sgd_scale_is_forgotten_on_a_skip() -> None:
    model, optimizer = start(lambda m: FusedLike(m.parameters(), materialize_master_grads=False))
    with amp.scale_loss(model(X).mean() * float("inf"), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    assert (optimizer.most_recent_scale, optimizer.scale_set_by_backward) == (1.0, False)
