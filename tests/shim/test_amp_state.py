"""Saved state, and the private attributes that programs read and assign."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from amp_testing import Net, amp, apex, fresh_amp, initialize, sgd


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    with fresh_amp(), warnings.catch_warnings():
        warnings.simplefilter("ignore", apex.DeprecatedFeatureWarning)
        yield


def train(steps: int, opt_level: str = "O1", num_losses: int = 1) -> None:
    model = Net()
    model, optimizer = initialize(model, sgd(model), opt_level, num_losses=num_losses)
    for _ in range(steps):
        with amp.scale_loss(model(torch.randn(3, 4)).float().sum() / 100, optimizer) as scaled:
            scaled.backward()
        optimizer.step()


def test_layout_of_the_saved_state() -> None:
    train(3, num_losses=2)
    assert amp.state_dict() == {
        "loss_scaler0": {"loss_scale": 65536.0, "unskipped": 3},
        "loss_scaler1": {"loss_scale": 65536.0, "unskipped": 0},
    }
    destination = {"mine": 1}
    assert amp.state_dict(destination) is destination
    assert list(destination) == ["mine", "loss_scaler0", "loss_scaler1"]


def test_static_scale_counts_and_saves_too() -> None:
    initialize(Net(), sgd(Net()), "O1", loss_scale=64.0)
    assert amp.state_dict()["loss_scaler0"] == {"loss_scale": 64.0, "unskipped": 0}


def test_round_trip() -> None:
    train(2)
    saved = amp.state_dict()
    saved["loss_scaler0"]["loss_scale"] = 512.0
    train(0)
    amp.load_state_dict(saved)
    assert amp.state_dict() == saved


def test_count_mismatch_prints_and_loads_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    train(0)
    capsys.readouterr()
    amp.load_state_dict({f"loss_scaler{i}": {"loss_scale": 2.0**i, "unskipped": i} for i in range(2)})
    out = capsys.readouterr().out
    assert "Warning" in out
    assert "Skipping loss_scaler[1]" in out
    assert amp.state_dict()["loss_scaler0"] == {"loss_scale": 1.0, "unskipped": 0}


def test_unexpected_keys_raise_after_loading() -> None:
    train(0)
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"scale"'):
        amp.load_state_dict({"loss_scaler0": {"loss_scale": 4.0, "unskipped": 7}, "scale": 1.0})
    assert amp.state_dict()["loss_scaler0"] == {"loss_scale": 4.0, "unskipped": 7}


def test_a_grad_scaler_state_does_not_load() -> None:
    train(0)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        amp.load_state_dict(torch.amp.GradScaler("cpu").state_dict())


def test_amp_state_is_the_object_and_also_a_module() -> None:
    from apex.amp import _amp_state as from_package
    from apex.amp._amp_state import _amp_state, master_params, maybe_print, warn_or_err

    assert from_package is _amp_state
    assert master_params is amp.master_params
    with pytest.raises(RuntimeError, match="message"):
        warn_or_err("message")
    assert maybe_print("quiet") is None


def test_common_reads_and_writes() -> None:
    train(1)
    state = amp._amp_state
    scaler = state.loss_scalers[0]
    assert (scaler.loss_scale(), scaler._loss_scale, scaler._unskipped) == (65536.0, 65536.0, 1)
    assert (scaler.dynamic, scaler._scale_seq_len, scaler._has_overflow) == (True, 2000, False)
    assert (scaler._max_loss_scale, scaler._min_loss_scale) == (2.0**24, None)
    assert state.opt_properties.loss_scale == "dynamic"
    assert state.min_loss_scale is None
    assert state.handle.is_active()


def test_scale_and_window_can_be_assigned() -> None:
    model = Net()
    model, optimizer = initialize(model, sgd(model))
    scaler = amp._amp_state.loss_scalers[0]
    scaler._loss_scale = 2.0**10
    scaler._scale_seq_len = 2
    seen = []
    for _ in range(5):
        with amp.scale_loss(model(torch.randn(3, 4)).float().sum(), optimizer) as scaled:
            seen.append(scaler.loss_scale())
            scaled.backward()
    assert seen == [2.0**10, 2.0**10, 2.0**11, 2.0**11, 2.0**12]


def test_overflow_flag_is_readable_after_the_block() -> None:
    model = Net()
    model, optimizer = initialize(model, sgd(model))
    with amp.scale_loss((model(torch.randn(3, 4)) * float("inf")).float().sum(), optimizer) as scaled:
        scaled.backward()
    assert amp._amp_state.loss_scalers[0]._has_overflow
    assert optimizer._amp_stash.already_patched


def test_overflow_flag_of_programs_that_judge_for_themselves() -> None:
    model = Net()
    model, optimizer = initialize(model, sgd(model))
    scaler = amp._amp_state.loss_scalers[0]
    assert scaler._overflow_buf.tolist() == [0]

    def backward(factor: float) -> None:
        loss = (model(torch.randn(3, 4)) * factor).float().sum()
        with amp.scale_loss(loss, optimizer, delay_overflow_check=True) as scaled:
            scaled.backward()

    backward(float("inf"))
    assert scaler._overflow_buf.tolist() == [1]
    mine = torch.zeros(1, dtype=torch.int)
    scaler._overflow_buf = mine
    assert (scaler.update_scale(), scaler.loss_scale()) == (False, 65536.0), "only the flag in place counts"
    mine.fill_(1)
    assert (scaler.update_scale(), scaler.loss_scale()) == (True, 32768.0)
    backward(1.0)
    assert mine.tolist() == [0], "the next backward pass clears it"
    scaler._overflow_buf.fill_(1)
    assert (scaler.update_scale(), scaler.loss_scale()) == (True, 16384.0)


def test_stash_is_sorted_lazily() -> None:
    model = Net()
    model, optimizer = initialize(model, sgd(model))
    stash = optimizer._amp_stash
    assert not stash.lazy_init_called
    assert not hasattr(stash, "all_fp32_params")
    optimizer._amp_lazy_init()
    assert stash.lazy_init_called
    assert [id(p) for p in stash.all_fp32_params] == [id(p) for p in model.parameters()]
    assert stash.all_fp16_params == []


def test_host_or_double_parameters_are_refused() -> None:
    for param in (torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.bfloat16)):
        model = Net()
        _, optimizer = initialize(model, torch.optim.SGD([param.requires_grad_()], lr=0.1))
        with pytest.raises(TypeError, match=r"torch\.cuda\.FloatTensor or torch\.cuda\.HalfTensor"):
            optimizer._prepare_amp_backward()
