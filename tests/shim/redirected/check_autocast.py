"""Native autocast and GradScaler for "cuda", with CUDA's rules, in float16."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from op_calls import result_dtype, rows
from torch import nn
from torch.nn import functional as F

ROWS = rows("cuda_autocast")


def test_the_table_is_there() -> None:
    assert len(ROWS) > 180


@pytest.mark.parametrize(("op", "given", "expected"), ROWS)
def test_rule(op: str, given: str, expected: str) -> None:
    torch.manual_seed(0)
    with torch.autocast("cuda", dtype=torch.float16):
        if expected == "error":
            with pytest.raises(RuntimeError):
                result_dtype(op, given, "cuda")
        else:
            assert result_dtype(op, given, "cuda") == expected


def test_binary_cross_entropy_is_refused_with_the_advice_of_cuda() -> None:
    x = torch.rand(3, device="cuda")
    with torch.autocast("cuda"), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        F.binary_cross_entropy(x, x)


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_run_in_half_like_cudnn(make: Any) -> None:
    layer = make(3, 4, 2).cuda()
    with torch.autocast("cuda"):
        out, _ = layer(torch.randn(5, 2, 3, device="cuda"))
    assert out.dtype == torch.float16
    out.float().sum().backward()
    assert layer.weight_ih_l0.grad.dtype == torch.float32


@pytest.mark.parametrize(
    "run",
    [
        lambda x: nn.Linear(4, 2).cuda()(x),
        lambda x: nn.Linear(4, 2, bias=False).cuda()(x),
        lambda x: nn.Linear(4, 2).cuda()(x[None]),
        lambda x: nn.Conv1d(3, 2, 1).cuda()(x[None]),
        lambda x: x @ torch.ones(4, 2, device="cuda"),
        lambda x: torch.addmm(torch.ones(2, device="cuda"), x, torch.ones(4, 2, device="cuda")),
        lambda x: torch.baddbmm(torch.ones(1, 3, 2, device="cuda"), x[None], torch.ones(1, 4, 2, device="cuda")),
        lambda x: torch.addmv(torch.ones(3, device="cuda"), x, torch.ones(4, device="cuda")),
    ],
)
def test_float64_is_left_alone_and_so_refused_beside_half(run: Any) -> None:
    with torch.autocast("cuda", dtype=torch.float16), pytest.raises(RuntimeError, match=r"(?i)double"):
        run(torch.ones(3, 4, dtype=torch.float64, device="cuda"))


def test_region_state_is_visible_to_the_program_and_ends() -> None:
    assert not torch.is_autocast_enabled()
    with torch.autocast("cuda"):
        assert torch.is_autocast_enabled()
        assert torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") == torch.float16
        with torch.autocast("cuda", enabled=False):
            assert not torch.is_autocast_enabled()
            assert (torch.ones(2, 2).cuda() @ torch.ones(2, 2).cuda()).dtype == torch.float32
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert (torch.ones(2, 2).cuda() @ torch.ones(2, 2).cuda()).dtype == torch.bfloat16
        assert (torch.ones(2, 2).cuda() @ torch.ones(2, 2).cuda()).dtype == torch.float16
    assert not torch.is_autocast_enabled()
    assert (torch.ones(2, 2).cuda() @ torch.ones(2, 2).cuda()).dtype == torch.float32


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_old_names_and_custom_functions() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            assert not torch.is_autocast_enabled()
            return x * 2

        @staticmethod
        @torch.cuda.amp.custom_bwd
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    x = torch.randn(2, 2, device="cuda", requires_grad=True)
    with torch.cuda.amp.autocast():
        half = x @ x
        out = Double.apply(half)
    assert (half.dtype, out.dtype) == (torch.float16, torch.float32)
    out.sum().backward()
    assert x.grad is not None


def test_one_weight_is_cast_once_per_region() -> None:
    weight = torch.randn(4, 4, device="cuda", requires_grad=True)
    vector = torch.randn(4, device="cuda")
    with torch.autocast("cuda"):
        first, second = torch.mv(weight, vector), torch.mv(weight, vector)
    one, other = (out.grad_fn.next_functions[0][0] for out in (first, second))  # type: ignore[union-attr]
    assert one is other
    weight.data.zero_()
    with torch.autocast("cuda"):
        assert torch.mv(weight, vector).abs().max() == 0  # a new region sees the new weight


def test_scaler_trains_skips_and_restores() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40, growth_interval=4)
    x, y = torch.randn(16, 4, device="cuda"), torch.randn(16, 1, device="cuda")
    losses, scales = [], []
    for _ in range(40):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    assert scales[0] == 2.0**39  # overflow: halved, step skipped
    assert losses[1] == losses[0]
    assert losses[-1] < 0.8 * losses[0]
    assert max(scales[-8:]) < 2.0**40
    fresh = torch.amp.GradScaler("cuda")
    fresh.load_state_dict(scaler.state_dict())
    assert fresh.get_scale() == scales[-1]


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_recomputes_in_the_same_dtype(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)).cuda()
    x = torch.randn(2, 4, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        out = checkpoint(model, x, use_reentrant=reentrant)
    assert out.dtype == torch.float16
    out.float().sum().backward()
    assert x.grad is not None


def test_half_products_are_rounded_once() -> None:
    a, b = torch.randn(64, 64).half().cuda(), torch.randn(64, 64).half().cuda()
    exact = a.double() @ b.double()
    assert torch.equal(a @ b, (a.float() @ b.float()).half())
    assert ((a @ b).double() - exact).abs().max() <= exact.abs().max() * 2**-11
    x, k = torch.randn(2, 3, 8, 8).half().cuda().requires_grad_(), torch.randn(4, 3, 3, 3).half().cuda()
    out = F.conv2d(x, k, padding=1)
    assert torch.equal(out, F.conv2d(x.float(), k.float(), padding=1).half())
    out.float().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float16


@pytest.mark.parametrize(
    "norm",
    [
        lambda x: F.layer_norm(x, (96,), torch.full_like(x[0], 1.5), torch.ones_like(x[0])),
        lambda x: F.layer_norm(x, (96,)),
        lambda x: F.group_norm(x, 8, torch.full_like(x[0], 1.5)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_norms_keep_their_statistics_in_float32(norm: Any, dtype: torch.dtype) -> None:
    half = torch.randn(64, 96).to(dtype).cuda().requires_grad_()
    wide = half.detach().float().requires_grad_()
    out, exact = norm(half), norm(wide)
    assert out.dtype == dtype
    assert torch.equal(out, exact.to(dtype))
    seed = torch.randn_like(out)
    out.backward(seed)
    exact.backward(seed.float())
    assert torch.equal(half.grad, wide.grad.to(dtype))
    with torch.autocast("cuda"):
        assert norm(half).dtype == torch.float32


@pytest.mark.parametrize(
    ("dims", "transposed", "options"),
    [
        (1, False, {"stride": 2, "padding": 1}),
        (2, False, {"dilation": 2, "groups": 2}),
        (2, False, {"padding": "same"}),
        (3, False, {"padding": (1, 0, 1)}),
        (1, True, {"stride": 2, "output_padding": 1}),
        (2, True, {"stride": 2, "padding": 1, "groups": 2}),
        (3, True, {}),
    ],
)
def test_convolutions_agree_with_float32_for_every_option(dims: int, transposed: bool, options: dict[str, Any]) -> None:
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    convolve = getattr(F, name)
    groups = options.get("groups", 1)
    weight = torch.randn(4, 4 // groups, *[3] * dims).half().cuda()
    bias = torch.randn(4).half().cuda() if groups == 1 else None
    for batch in ((2,), ()):
        x = torch.randn(*batch, 4, *[7] * dims).half().cuda()
        out = convolve(x, weight, bias, **options)
        wide = convolve(x.float(), weight.float(), None if bias is None else bias.float(), **options)
        assert out.dtype == torch.float16
        torch.testing.assert_close(out, wide.half())


def test_half_operations_that_the_cpu_lacks() -> None:
    x = torch.randn(1, 2, 4, 4, 4).half().cuda().requires_grad_()
    pooled = F.avg_pool3d(x, 2)
    assert pooled.dtype == torch.float16
    pooled.sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 1 / 8))
    assert torch.round(torch.tensor([1.2345]).half().cuda(), decimals=2).dtype == torch.float16
    with pytest.raises(RuntimeError):  # other errors stay
        F.avg_pool3d(torch.zeros(2, 2).half().cuda(), 2)
