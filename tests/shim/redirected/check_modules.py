"""Layers and wrappers that care about devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn


def test_data_parallel_uses_the_one_device() -> None:
    for model in (
        nn.DataParallel(nn.Linear(2, 2)).cuda(),
        nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[0, 1, 2], output_device=0),
    ):
        out = model(torch.ones(6, 2).cpu())
        assert out.shape == (6, 2)
        assert out.is_cuda
        assert set(model.state_dict()) == {"module.weight", "module.bias"}


def test_data_parallel_moves_nested_inputs() -> None:
    class Sum(nn.Module):
        def forward(self, batch: dict[str, Any], *, scale: torch.Tensor) -> torch.Tensor:
            assert batch["x"][0].is_cuda
            assert scale.is_cuda
            return batch["x"][0] * scale + batch["n"]

    model = nn.DataParallel(Sum())
    assert model({"x": [torch.ones(2).cpu()], "n": 3}, scale=torch.tensor(2.0).cpu()).tolist() == [5, 5]
    functional = nn.parallel.data_parallel(nn.Identity(), torch.ones(2).cpu(), range(2))
    assert functional.is_cuda


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.filterwarnings("error")
def test_packed_sequences(make: Any) -> None:
    layer = make(3, 4, bidirectional=True).cuda()
    layer.flatten_parameters()
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 3).cuda(), torch.tensor([5, 3]))
    assert packed.is_cuda
    assert packed.cuda().data.is_cuda
    assert packed.batch_sizes.device.type == "cpu"
    out, lengths = nn.utils.rnn.pad_packed_sequence(layer(packed)[0])
    assert out.shape == (5, 2, 8)
    assert lengths.tolist() == [5, 3]


def test_native_sync_batch_norm_without_a_group() -> None:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(3)).cuda()
    x = torch.randn(4, 3, 2, 2).cuda()
    torch.testing.assert_close(model(x), nn.BatchNorm2d(3)(x))


def test_the_pieces_of_sync_batch_norm_agree_with_batch_norm() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 3, 5).cuda()
    weight, bias = torch.randn(3).cuda(), torch.randn(3).cuda()
    running_mean, running_var = torch.zeros(3).cuda(), torch.ones(3).cuda()
    parts = x.split((2, 4))
    stats = [torch.batch_norm_stats(part, 1e-5) for part in parts]
    counts = torch.tensor([10.0, 20.0])
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        x,
        torch.stack([m for m, _ in stats]),
        torch.stack([s for _, s in stats]),
        running_mean,
        running_var,
        0.1,
        1e-5,
        counts,
    )
    reference = nn.BatchNorm1d(3).cuda()
    reference.weight.data, reference.bias.data = weight.clone(), bias.clone()
    leaf = x.clone().requires_grad_()
    expected = reference(leaf)
    torch.testing.assert_close(torch.batch_norm_elemt(x, weight, bias, mean, invstd, 1e-5), expected.detach())
    torch.testing.assert_close(running_mean, reference.running_mean)
    torch.testing.assert_close(running_var, reference.running_var)
    grad = torch.randn_like(x)
    expected.backward(grad)
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = torch.batch_norm_backward_reduce(
        grad, x, mean, invstd, weight, True, True, True
    )
    torch.testing.assert_close(grad_weight, reference.weight.grad)
    torch.testing.assert_close(grad_bias, reference.bias.grad)
    grad_input = torch.batch_norm_backward_elemt(grad, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counts)
    torch.testing.assert_close(grad_input, leaf.grad)


@pytest.mark.parametrize("opt_level", ["O0", "O1", "O2", "O3"])
@pytest.mark.filterwarnings("ignore")
def test_apex_trains_on_what_it_takes_for_a_gpu(opt_level: str) -> None:
    from apex import amp

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer = amp.initialize(model, optimizer, opt_level=opt_level, verbosity=0)
    x, y = torch.randn(16, 4, device="cuda"), torch.randn(16, 1, device="cuda")
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x).float(), y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        losses.append(loss.item())
    amp._amp_state.handle._deactivate() if opt_level == "O1" else None
    assert losses[-1] < losses[0]


@pytest.mark.filterwarnings("ignore")
def test_apex_refuses_a_model_on_the_host() -> None:
    from apex import amp

    model = nn.Linear(2, 2).cuda().cpu()
    with pytest.raises(RuntimeError, match=r"torch\.FloatTensor"):
        amp.initialize(model, torch.optim.SGD(model.parameters(), 0.1), opt_level="O2", verbosity=0)
