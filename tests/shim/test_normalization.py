"""Fused norms against torch's, and their output dtypes."""

from __future__ import annotations

from collections.abc import Callable

import amp_testing  # noqa: F401 - makes `apex` the shim
import pytest
import torch
from apex.normalization import FusedLayerNorm, FusedRMSNorm, MixedFusedLayerNorm, MixedFusedRMSNorm
from apex.normalization.fused_layer_norm import (
    FusedLayerNormAffineFunction,
    fused_layer_norm,
    fused_layer_norm_affine,
    fused_rms_norm,
    fused_rms_norm_affine,
    mixed_dtype_fused_layer_norm_affine,
    mixed_dtype_fused_rms_norm_affine,
)
from torch import nn

PAIRS: list[tuple[Callable[..., nn.Module], Callable[..., nn.Module]]] = [
    (FusedLayerNorm, nn.LayerNorm),
    (FusedRMSNorm, nn.RMSNorm),
]


@pytest.mark.parametrize(("fused", "native"), PAIRS)
@pytest.mark.parametrize("shape", [5, (5,), (4, 5)])
@pytest.mark.parametrize("affine", [True, False])
def test_agrees_with_torch(
    fused: Callable[..., nn.Module], native: Callable[..., nn.Module], shape: int, affine: bool
) -> None:
    torch.manual_seed(0)
    ours, theirs = fused(shape, eps=1e-5, elementwise_affine=affine), native(shape, eps=1e-5, elementwise_affine=affine)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for p in theirs.parameters():
        nn.init.normal_(p)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 4, 5, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    torch.testing.assert_close(ours(x), theirs(y))
    grad = torch.randn(3, 4, 5)
    ours(x).backward(grad)
    theirs(y).backward(grad)
    torch.testing.assert_close(x.grad, y.grad)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


HALF, FLOAT = torch.float16, torch.float32


@pytest.mark.parametrize(
    ("make", "given", "weights", "expected"),
    [
        (FusedLayerNorm, HALF, HALF, HALF),
        (FusedLayerNorm, HALF, FLOAT, HALF),
        (FusedLayerNorm, FLOAT, FLOAT, FLOAT),
        (MixedFusedLayerNorm, HALF, FLOAT, FLOAT),
        (MixedFusedLayerNorm, HALF, HALF, HALF),
        (FusedRMSNorm, HALF, FLOAT, HALF),
        (MixedFusedRMSNorm, HALF, FLOAT, FLOAT),
        (MixedFusedRMSNorm, torch.bfloat16, torch.bfloat16, torch.bfloat16),
    ],
)
def test_output_dtype_and_float32_arithmetic(
    make: Callable[[int], nn.Module], given: torch.dtype, weights: torch.dtype, expected: torch.dtype
) -> None:
    layer = make(64).to(weights)
    x = (torch.randn(4, 64) * 300).to(given)  # squares overflow float16
    out = layer(x)
    assert out.dtype == expected
    torch.testing.assert_close(out, make(64)(x.float()).to(expected))


def test_functions() -> None:
    x, w, b = torch.randn(3, 5).half(), torch.randn(5), torch.randn(5)
    expected = nn.functional.layer_norm(x.float(), (5,), w, b, 1e-6)
    torch.testing.assert_close(fused_layer_norm_affine(x, w, b, (5,)), expected.half())
    torch.testing.assert_close(FusedLayerNormAffineFunction.apply(x, w, b, (5,), 1e-6), expected.half())
    torch.testing.assert_close(mixed_dtype_fused_layer_norm_affine(x, w, b, (5,)), expected)
    torch.testing.assert_close(fused_layer_norm(x, (5,)), nn.functional.layer_norm(x.float(), (5,), eps=1e-6).half())
    rms = nn.functional.rms_norm(x.float(), (5,), w, 1e-6)
    torch.testing.assert_close(fused_rms_norm_affine(x, w, (5,)), rms.half())
    torch.testing.assert_close(mixed_dtype_fused_rms_norm_affine(x, w, (5,)), rms)
    torch.testing.assert_close(fused_rms_norm(x, (5,)), nn.functional.rms_norm(x.float(), (5,), None, 1e-6).half())


@pytest.mark.parametrize("make", [MixedFusedLayerNorm, MixedFusedRMSNorm])
def test_mixed_norms_are_always_affine(make: Callable[..., nn.Module]) -> None:
    with pytest.warns(UserWarning, match="elementwise_affine"):
        make(4, elementwise_affine=True)
    with pytest.warns(UserWarning, match="elementwise_affine"), pytest.raises(RuntimeError, match="elementwise_affine"):
        make(4, elementwise_affine=False)
