"""float16 matrix products, convolutions and norms as a GPU does them: float32 inside, one rounding at the end.

torch's own float16 products for CPUs without float16 arithmetic round at the same places and take 10 to 30 times as
long, forward and backward. Its norms keep the mean and the deviation for backward in the type of the input, CUDA's in float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

_aten = torch.ops.aten
_half = torch.float16
_float = torch.Tensor.float
_to = torch.Tensor.to
_library: Any = None

# The structured products: their `.out` overloads still hold torch's own kernels.
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addmv")
# Convolutions with a fixed number of spatial dimensions, split above autograd so that backward is split as well.
CONVOLUTIONS = {
    "conv1d": (1, False),
    "conv2d": (2, False),
    "conv3d": (3, False),
    "conv_transpose1d": (1, True),
    "conv_transpose2d.input": (2, True),
    "conv_transpose3d.input": (3, True),
}

# Split above autograd too; torch's own decomposition does the rest.
NORMS = ("layer_norm", "group_norm")


def _product(name: str) -> Callable[..., Tensor]:
    out_of_place = getattr(_aten, name).out

    def kernel(*operands: Tensor, **options: Any) -> Tensor:
        # Beside float64 torch's own kernel refuses; float32 is what O1 makes of a half value that a hook keeps on the host.
        if operands[0].dtype is not _half or any(operand.dtype is torch.float64 for operand in operands):
            return out_of_place(*operands, **options, out=operands[0].new_empty(0))  # type: ignore[no-any-return]
        wide = [_float(operand) for operand in operands]
        return _to(out_of_place(*wide, **options, out=wide[0].new_empty(0)), _half)

    return kernel


def _convolution(dims: int, transposed: bool) -> Callable[..., Tensor]:
    def convolve(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: Any,
        padding: Any,
        output_padding: Any,
        groups: int,
        dilation: Any,
    ) -> Tensor:
        batched = input if input.dim() == dims + 2 else input.unsqueeze(0)
        sizes = [_expanded(value, dims) for value in (stride, padding, dilation, output_padding)]
        operands = [batched, weight, bias]
        narrow = input.dtype is _half and weight.dtype is _half
        if narrow:
            operands = [None if operand is None else _float(operand) for operand in operands]
        result = _aten.convolution.default(*operands, *sizes[:3], transposed, sizes[3], groups)
        result = result if batched is input else result.squeeze(0)
        return _to(result, _half) if narrow else result

    if transposed:

        def transposed_kernel(
            input: Tensor,
            weight: Tensor,
            bias: Tensor | None = None,
            stride: Any = 1,
            padding: Any = 0,
            output_padding: Any = 0,
            groups: int = 1,
            dilation: Any = 1,
        ) -> Tensor:
            return convolve(input, weight, bias, stride, padding, output_padding, groups, dilation)

        return transposed_kernel

    def kernel(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        return convolve(input, weight, bias, stride, padding, 0, groups, dilation)

    return kernel


def _norm(name: str) -> Callable[..., Tensor]:
    decompose = getattr(_aten, name).default.decompose

    def kernel(input: Tensor, *settings: Any) -> Tensor:
        if input.dtype not in (_half, torch.bfloat16):
            return decompose(input, *settings)  # type: ignore[no-any-return]
        wide = [_float(value) if isinstance(value, Tensor) else value for value in settings]
        return _to(decompose(_float(input), *wide), input.dtype)

    return kernel


def _expanded(value: Any, dims: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * dims if len(values) == 1 else values


def install() -> None:
    """Register the kernels with torch's dispatcher."""
    global _library
    _library = Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overriding torch's kernels is the purpose
        for name in PRODUCTS:
            _library.impl(name, _product(name), "CPU")
        for name, shape in CONVOLUTIONS.items():
            _library.impl(name, _convolution(*shape), "AutogradCPU")
        for name in NORMS:
            _library.impl(name, _norm(name), "AutogradCPU")
