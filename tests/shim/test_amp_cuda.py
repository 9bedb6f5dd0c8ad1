"""The shim on a real device: the measured dtypes, and training that follows fp32 at every level."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from amp_testing import Net, amp, apex, fresh_amp, initialize
from op_calls import result_dtype, rows

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    with fresh_amp(), warnings.catch_warnings():
        warnings.simplefilter("ignore", apex.DeprecatedFeatureWarning)
        yield


# The calls that raise in the data do so on the CPU.
@pytest.mark.parametrize(("op", "given", "expected"), [row for row in rows("apex_O1") if row[2] != "error"])
def test_dtype_under_o1(op: str, given: str, expected: str) -> None:
    amp.init()
    assert result_dtype(op, given, device="cuda") == expected


def losses(opt_level: str, steps: int = 10) -> list[float]:
    torch.manual_seed(0)
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = initialize(model, optimizer, opt_level, loss_scale=128.0)
    x, y = torch.randn(64, 4, device="cuda"), torch.randn(64, 2, device="cuda")
    curve = []
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        curve.append(loss.item())
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        optimizer.zero_grad()
    return curve


@pytest.mark.parametrize("opt_level", ["O1", "O2", "O3"])
def test_training_follows_fp32(opt_level: str) -> None:
    expected = losses("O0")  # first: the casts of O1 would stay
    assert losses(opt_level) == pytest.approx(expected, rel=2e-2)


def test_recurrent_weights_reach_cudnn_in_one_piece() -> None:
    initialize(Net().cuda())
    layer = torch.nn.LSTM(4, 3, num_layers=2).cuda()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output, _ = layer(torch.randn(5, 2, 4, device="cuda"))
    output.float().sum().backward()
    assert output.dtype == torch.float16
    assert all(p.grad is not None for p in layer.parameters())
