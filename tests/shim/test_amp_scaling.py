"""Loss scale, unscaling, skipped steps: what `scale_loss` does and when."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from amp_testing import Net, _amp_state, amp, apex, fresh_amp, initialize, sgd
from apex.amp.scaler import LossScaler


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    with fresh_amp(), warnings.catch_warnings():
        warnings.simplefilter("ignore", apex.DeprecatedFeatureWarning)
        yield


class Weight(torch.nn.Module):
    """One number; its loss is `weight * factor`, so its gradient is `factor`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, factor: float) -> torch.Tensor:
        return (self.weight * torch.tensor([factor], dtype=self.weight.dtype)).sum()


def start(opt_level: str = "O1", window: int | None = None, **options: Any) -> tuple[Any, Any]:
    model = Weight()
    model, optimizer = initialize(model, sgd(model, lr=1.0), opt_level, **options)
    if window is not None:
        for scaler in _amp_state.loss_scalers:
            scaler._scale_seq_len = window
    return model, optimizer


def backward(module: Any, optimizer: Any, factor: float = 1.0, **options: Any) -> None:
    with amp.scale_loss(module(factor), optimizer, **options) as scaled:
        scaled.backward()


def scale(index: int = 0) -> float:
    return _amp_state.loss_scalers[index].loss_scale()


INF = float("inf")


def test_before_initialize_raises() -> None:
    with pytest.raises(RuntimeError, match=r"amp\.initialize"), amp.scale_loss(torch.ones(1), sgd(Weight())):
        pass


@pytest.mark.parametrize("opt_level", ["O0", "O1", "O2", "O3"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_yields_a_float32_loss(opt_level: str, dtype: torch.dtype) -> None:
    _, optimizer = start(opt_level)
    loss = torch.tensor([1.0, 2.0], dtype=dtype)
    with amp.scale_loss(loss, optimizer) as scaled:
        assert scaled.dtype == torch.float32
        assert torch.equal(scaled, loss.float() * scale())


def test_half_loss_is_widened_before_it_is_scaled() -> None:
    _, optimizer = start()
    with amp.scale_loss(torch.tensor([4.0, 9.0], dtype=torch.float16), optimizer) as scaled:
        assert torch.isfinite(scaled).all()


@pytest.mark.parametrize(("opt_level", "expected"), [("O0", 1.0), ("O1", 65536.0), ("O2", 65536.0), ("O3", 1.0)])
def test_first_scale(opt_level: str, expected: float) -> None:
    start(opt_level)
    assert scale() == expected
    assert _amp_state.loss_scalers[0].dynamic == (expected != 1.0)


def test_scale_doubles_after_2000_backward_passes_without_any_step() -> None:
    scaler = LossScaler("dynamic")
    for _ in range(1999):
        scaler.update_scale()
    assert (scaler.loss_scale(), scaler._unskipped) == (65536.0, 1999)
    scaler.update_scale()
    assert (scaler.loss_scale(), scaler._unskipped) == (131072.0, 0)


def test_scale_can_change_inside_one_accumulation() -> None:
    model, optimizer = start(window=1)
    seen = []
    for _ in range(3):
        with amp.scale_loss(model(1.0), optimizer) as scaled:
            seen.append(scaled.item())
            scaled.backward()
    assert seen == [65536.0, 131072.0, 262144.0]
    assert model.weight.grad.item() == 3.0


def test_scale_is_capped_at_2_to_the_24() -> None:
    model, optimizer = start("O0", window=1, loss_scale="dynamic")
    for _ in range(12):
        backward(model, optimizer, 1e-6)
    assert scale() == 2.0**24
    assert _amp_state.loss_scalers[0]._unskipped == 0


def test_max_and_min_loss_scale() -> None:
    model, optimizer = start(window=1, max_loss_scale=2.0**17, min_loss_scale=2.0**15)
    for _ in range(3):
        backward(model, optimizer)
    assert scale() == 2.0**17
    for _ in range(4):
        backward(model, optimizer, INF)
        optimizer.step()
    assert scale() == 2.0**15


def test_max_loss_scale_bounds_the_first_scale() -> None:
    start(max_loss_scale=1024.0)
    assert scale() == 1024.0


@pytest.mark.parametrize("bad", [INF, -INF, float("nan")])
def test_overflow_halves_and_skips_one_step(bad: float) -> None:
    model, optimizer = start()
    backward(model, optimizer, bad)
    assert scale() == 32768.0
    assert optimizer.step() is None
    assert model.weight.item() == 1.0
    assert not torch.isfinite(model.weight.grad).any(), "under O1 the gradients keep their infs"
    optimizer.zero_grad()
    backward(model, optimizer)
    optimizer.step()
    assert model.weight.item() == 0.0


def test_overflow_resets_the_growth_counter() -> None:
    model, optimizer = start()
    backward(model, optimizer)
    assert _amp_state.loss_scalers[0]._unskipped == 1
    backward(model, optimizer, INF)
    assert _amp_state.loss_scalers[0]._unskipped == 0


def test_overflow_in_the_first_of_two_micro_batches() -> None:
    model, optimizer = start()
    backward(model, optimizer, INF)
    assert scale() == 32768.0
    backward(model, optimizer)
    assert scale() == 32768.0
    assert _amp_state.loss_scalers[0]._unskipped == 1, "the second one counts as clean"
    optimizer.step()
    assert model.weight.item() == 1.0, "the whole step is skipped"


def test_two_overflows_before_one_step_skip_one_step() -> None:
    model, optimizer = start()
    backward(model, optimizer, INF)
    backward(model, optimizer, INF)
    assert scale() == 16384.0
    optimizer.step()
    optimizer.zero_grad()
    backward(model, optimizer)
    optimizer.step()
    assert model.weight.item() == 0.0


def test_static_scale_never_grows() -> None:
    model, optimizer = start(loss_scale=128.0, window=1)
    backward(model, optimizer)
    backward(model, optimizer)
    assert scale() == 128.0
    assert _amp_state.loss_scalers[0]._unskipped == 2


def test_static_scale_never_skips() -> None:
    model, optimizer = start(loss_scale=128.0)
    backward(model, optimizer, INF)
    optimizer.step()
    assert model.weight.item() == -INF
    assert scale() == 128.0


@pytest.mark.parametrize("opt_level", ["O2", "O3"])
def test_a_half_scalar_loss_pins_the_scale_at_32768(opt_level: str) -> None:
    model, optimizer = start(opt_level, window=1, loss_scale="dynamic")
    seen = []
    for _ in range(4):
        seen.append(scale())
        backward(model, optimizer)
        optimizer.step()
        optimizer.zero_grad()
    assert seen == [65536.0, 32768.0, 65536.0, 32768.0], "its gradient is the scale, and 65536 is no fp16 number"


@pytest.mark.parametrize("opt_level", ["O0", "O1", "O2", "O3"])
@pytest.mark.parametrize("loss_scale", [None, 1.0, 8.0, 1000.0, "dynamic"])
def test_gradients_are_unscaled_after_the_block(opt_level: str, loss_scale: Any) -> None:
    model, optimizer = start(opt_level, loss_scale=loss_scale)
    if _amp_state.loss_scalers[0].dynamic:
        _amp_state.loss_scalers[0]._loss_scale = 1024.0
    backward(model, optimizer, 0.25)
    (param,) = amp.master_params(optimizer)
    assert param.grad is not None
    assert param.grad.item() == pytest.approx(0.25, rel=1e-3)


@pytest.mark.parametrize("opt_level", ["O0", "O1", "O2", "O3"])
@pytest.mark.parametrize("loss_scale", [8.0, "dynamic"])
def test_accumulation_unscales_each_micro_batch_once(opt_level: str, loss_scale: Any) -> None:
    model, optimizer = start(opt_level, loss_scale=loss_scale)
    if loss_scale == "dynamic":
        _amp_state.loss_scalers[0]._loss_scale = 1024.0
    for factor in (0.25, 0.5, 1.0):
        backward(model, optimizer, factor)
    (param,) = amp.master_params(optimizer)
    assert param.grad is not None
    assert param.grad.item() == 1.75


def test_gradients_are_scaled_inside_the_block() -> None:
    model, optimizer = start(loss_scale=16.0)
    with amp.scale_loss(model(1.0), optimizer) as scaled:
        scaled.backward()
        assert model.weight.grad.item() == 16.0
    assert model.weight.grad.item() == 1.0


@pytest.mark.parametrize("opt_level", ["O0", "O1", "O2", "O3"])
def test_delay_unscale(opt_level: str) -> None:
    model, optimizer = start(opt_level, loss_scale=16.0)
    backward(model, optimizer, 0.25, delay_unscale=True)
    assert model.weight.grad.item() == 4.0
    backward(model, optimizer, 0.5)
    (param,) = amp.master_params(optimizer)
    assert param.grad is not None
    assert param.grad.item() == 0.75
    assert _amp_state.loss_scalers[0]._unskipped == 1, "a delayed backward pass is not counted"


def test_delay_overflow_check_unscales_but_does_not_judge() -> None:
    model, optimizer = start()
    backward(model, optimizer, INF, delay_overflow_check=True)
    assert scale() == 65536.0
    assert _amp_state.loss_scalers[0]._unskipped == 0
    optimizer.step()
    assert model.weight.item() == -INF


def test_loss_id_selects_a_scaler_and_defaults_to_the_first() -> None:
    model, optimizer = start(num_losses=3)
    backward(model, optimizer, INF, loss_id=1)
    optimizer.step()
    optimizer.zero_grad()
    backward(model, optimizer)
    assert [scale(i) for i in range(3)] == [65536.0, 32768.0, 65536.0]
    assert [s._unskipped for s in _amp_state.loss_scalers] == [1, 0, 0]
    with pytest.raises(IndexError):
        backward(model, optimizer, loss_id=3)


def test_two_losses_with_different_scales_add_up() -> None:
    model, optimizer = start(num_losses=2)
    _amp_state.loss_scalers[1]._loss_scale = 4.0
    backward(model, optimizer, 0.5, loss_id=0)
    backward(model, optimizer, 2.0, loss_id=1)
    assert model.weight.grad.item() == 2.5


def test_overflow_skips_every_optimizer_of_the_call() -> None:
    models = [Weight(), Weight()]
    models, optimizers = initialize(models, [sgd(m, lr=1.0) for m in models])
    loss = models[0](INF) + models[1](1.0)
    with amp.scale_loss(loss, optimizers) as scaled:
        scaled.backward()
    for optimizer in optimizers:
        optimizer.step()
    assert [m.weight.item() for m in models] == [1.0, 1.0]


def test_a_finite_loss_of_another_optimizer_steps() -> None:
    models = [Weight(), Weight()]
    models, optimizers = initialize(models, [sgd(m, lr=1.0) for m in models], num_losses=2)
    backward(models[0], optimizers[0], INF, loss_id=0)
    backward(models[1], optimizers[1], 1.0, loss_id=1)
    for optimizer in optimizers:
        optimizer.step()
    assert [m.weight.item() for m in models] == [1.0, 0.0]


def test_backward_arguments_belong_to_the_program() -> None:
    model, optimizer = start()
    loss = model(1.0)
    for _ in range(2):
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward(retain_graph=True)
    assert model.weight.grad.item() == 2.0


def test_model_argument_is_ignored() -> None:
    model, optimizer = start()
    backward(model, optimizer, 0.5, model=model)
    assert model.weight.grad.item() == 0.5


def test_exception_in_the_block_leaves_gradients_scaled() -> None:
    model, optimizer = start(loss_scale=16.0)

    def fail_after_backward() -> None:
        with amp.scale_loss(model(1.0), optimizer) as scaled:
            scaled.backward()
            raise KeyError

    with pytest.raises(KeyError):
        fail_after_backward()
    assert model.weight.grad.item() == 16.0


@pytest.mark.parametrize("opt_level", ["O0", "O1", "O2", "O3"])
def test_closure_after_an_overflow_raises(opt_level: str) -> None:
    model, optimizer = start(opt_level, loss_scale="dynamic")
    backward(model, optimizer, INF)
    with pytest.raises(RuntimeError, match="closure"):
        optimizer.step(lambda: None)


def test_closure_under_o2_always_raises_and_otherwise_runs() -> None:
    model, optimizer = start("O2", loss_scale=8.0)
    backward(model, optimizer)
    with pytest.raises(RuntimeError, match="closure"):
        optimizer.step(lambda: None)
    model, optimizer = start("O1")
    assert optimizer.step(lambda: "called") == "called"


def test_missing_gradients_are_no_error() -> None:
    model, unused = Net(), torch.nn.Linear(2, 2)
    model, optimizer = initialize(model, torch.optim.SGD([*model.parameters(), *unused.parameters()], lr=0.1))
    with amp.scale_loss(model(torch.randn(3, 4)).sum(), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    assert unused.weight.grad is None
    assert model.fc.weight.grad is not None


@pytest.mark.parametrize("opt_level", ["O0", "O1", "O3"])
def test_a_gradient_that_this_backward_does_not_reach_is_kept(opt_level: str) -> None:
    models = [Weight(), Weight()]
    params = [m.weight for m in models]
    models, optimizer = initialize(models, torch.optim.SGD(params, lr=1.0), opt_level, loss_scale=8.0)
    backward(models[0], optimizer, 0.5)
    backward(models[1], optimizer, 0.25)
    assert [p.grad.item() for p in params if p.grad is not None] == [0.5, 0.25]


def test_sparse_gradients() -> None:
    model = torch.nn.Embedding(5, 2, sparse=True)
    model, optimizer = initialize(model, sgd(model), loss_scale=8.0)
    for _ in range(2):
        with amp.scale_loss(model(torch.tensor([1, 1, 3])).sum(), optimizer) as scaled:
            scaled.backward()
    assert model.weight.grad.is_sparse
    assert model.weight.grad.to_dense()[:, 0].tolist() == [0.0, 4.0, 0.0, 2.0, 0.0]


def test_scheduler_made_before_initialize_warns() -> None:
    model = Weight()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer = initialize(model, optimizer)
    backward(model, optimizer)
    optimizer.step()
    with pytest.warns(UserWarning, match=r"`optimizer\.step\(\)` has been overridden"):
        scheduler.step()


def test_scheduler_after_a_skipped_first_step_warns() -> None:
    model, optimizer = start()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    backward(model, optimizer, INF)
    optimizer.step()
    with pytest.warns(UserWarning, match=r"`lr_scheduler\.step\(\)` before `optimizer\.step\(\)`"):
        scheduler.step()


def test_skip_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    model, optimizer = start(verbosity=1)
    capsys.readouterr()
    backward(model, optimizer, INF)
    optimizer.step()
    assert "Gradient overflow" in capsys.readouterr().out
