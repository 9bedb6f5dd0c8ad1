"""Layer norm and RMS norm: arithmetic in float32, and an output dtype of their own.

The plain functions return the dtype of the input, the mixed ones that of the weight. Under native autocast all
arguments are cast to its dtype first. Apex's compiled kernels refuse an input and weights of different dtypes in the
plain functions; here they are accepted. `memory_efficient` chooses what Apex keeps for backward and changes nothing.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Shape = int | Sequence[int]


def _under_autocast(*tensors: Tensor | None) -> list[Tensor | None]:
    if not torch.is_autocast_enabled("cuda"):
        return list(tensors)
    dtype = torch.get_autocast_dtype("cuda")
    return [t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t for t in tensors]


def _layer_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Shape, eps: float, mixed: bool
) -> Tensor:
    input, weight, bias = _under_autocast(input, weight, bias)  # type: ignore[assignment]
    dtype = weight.dtype if mixed and weight is not None else input.dtype
    with torch.autocast("cuda", enabled=False):
        wide = [None if t is None else t.float() if t.dtype != torch.float64 else t for t in (input, weight, bias)]
        return F.layer_norm(wide[0], _as_tuple(shape), wide[1], wide[2], eps).to(dtype)  # type: ignore[arg-type]


def _rms_norm(input: Tensor, weight: Tensor | None, shape: Shape, eps: float, mixed: bool) -> Tensor:
    input, weight = _under_autocast(input, weight)  # type: ignore[assignment]
    dtype = weight.dtype if mixed and weight is not None else input.dtype
    with torch.autocast("cuda", enabled=False):
        wide = input.float() if input.dtype != torch.float64 else input
        dims = tuple(range(-len(_as_tuple(shape)), 0))
        result = wide * torch.rsqrt(wide.square().mean(dims, keepdim=True) + eps)
        return (result if weight is None else result * weight.to(wide.dtype)).to(dtype)


def _as_tuple(shape: Shape) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, numbers.Integral) else tuple(shape)  # type: ignore[arg-type]


def fused_layer_norm_affine(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """Layer norm with weight and bias, in the dtype of the input."""
    return _layer_norm(input, weight, bias, normalized_shape, eps, mixed=False)


def fused_layer_norm(
    input: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """Layer norm without weights."""
    return _layer_norm(input, None, None, normalized_shape, eps, mixed=False)


def mixed_dtype_fused_layer_norm_affine(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """Layer norm with weight and bias, in the dtype of the weight."""
    return _layer_norm(input, weight, bias, normalized_shape, eps, mixed=True)


def fused_rms_norm_affine(
    input: Tensor, weight: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """RMS norm with weight, in the dtype of the input."""
    return _rms_norm(input, weight, normalized_shape, eps, mixed=False)


def fused_rms_norm(input: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False) -> Tensor:
    """RMS norm without weight."""
    return _rms_norm(input, None, normalized_shape, eps, mixed=False)


def mixed_dtype_fused_rms_norm_affine(
    input: Tensor, weight: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """RMS norm with weight, in the dtype of the weight."""
    return _rms_norm(input, weight, normalized_shape, eps, mixed=True)


class FusedLayerNormAffineFunction:
    """Called by some programs as `FusedLayerNormAffineFunction.apply(input, weight, bias, shape, eps)`."""

    apply = staticmethod(fused_layer_norm_affine)


class FusedLayerNormFunction:
    """Called by some programs as `FusedLayerNormFunction.apply(input, shape, eps)`."""

    apply = staticmethod(fused_layer_norm)


class FusedRMSNormAffineFunction:
    """Called by some programs as `FusedRMSNormAffineFunction.apply(input, weight, shape, eps)`."""

    apply = staticmethod(fused_rms_norm_affine)


class FusedRMSNormFunction:
    """Called by some programs as `FusedRMSNormFunction.apply(input, shape, eps)`."""

    apply = staticmethod(fused_rms_norm)


class FusedLayerNorm(nn.Module):
    """Layer norm; parameters, defaults and state as `torch.nn.LayerNorm`'s. The output has the input's dtype."""

    mixed = False

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        self.normalized_shape = torch.Size(_as_tuple(normalized_shape))
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.memory_efficient = memory_efficient
        self.weight = nn.Parameter(torch.empty(self.normalized_shape)) if elementwise_affine else None
        self.bias = nn.Parameter(torch.empty(self.normalized_shape)) if elementwise_affine else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight one, bias zero."""
        if self.weight is not None and self.bias is not None:
            nn.init.ones_(self.weight)
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return _layer_norm(input, self.weight, self.bias, self.normalized_shape, self.eps, self.mixed)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class FusedRMSNorm(nn.Module):
    """RMS norm with an optional weight. The output has the input's dtype."""

    mixed = False

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        self.normalized_shape = torch.Size(_as_tuple(normalized_shape))
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.memory_efficient = memory_efficient
        self.weight = nn.Parameter(torch.empty(self.normalized_shape)) if elementwise_affine else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight one."""
        if self.weight is not None:
            nn.init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return _rms_norm(input, self.weight, self.normalized_shape, self.eps, self.mixed)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


def _require_affine(name: str, options: dict[str, Any]) -> None:
    if "elementwise_affine" in options:
        warnings.warn(f"{name} does not support `elementwise_affine` argument", stacklevel=3)
        if not options["elementwise_affine"]:
            raise RuntimeError(f"{name} does not support `elementwise_affine = False`")


class MixedFusedLayerNorm(FusedLayerNorm):
    """Layer norm whose output has the dtype of its parameters, which it always has."""

    mixed = True

    def __init__(
        self, normalized_shape: Shape, eps: float = 1e-5, *, memory_efficient: bool = False, **kwargs: Any
    ) -> None:
        _require_affine("MixedFusedLayerNorm", kwargs)
        super().__init__(normalized_shape, eps, memory_efficient=memory_efficient)


class MixedFusedRMSNorm(FusedRMSNorm):
    """RMS norm whose output has the dtype of its weight, which it always has."""

    mixed = True

    def __init__(
        self, normalized_shape: Shape, eps: float = 1e-5, *, memory_efficient: bool = False, **kwargs: Any
    ) -> None:
        _require_affine("MixedFusedRMSNorm", kwargs)
        super().__init__(normalized_shape, eps, memory_efficient=memory_efficient)
