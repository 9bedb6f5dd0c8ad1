"""The device functions `torch.nn.SyncBatchNorm` is made of, in plain torch operations.

All statistics are float32, as on a device. The channel is dimension 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from amp_migrate.shim.redirect.patching import replace


def _dims(input: Tensor) -> list[int]:
    return [dim for dim in range(input.dim()) if dim != 1]


def _column(values: Tensor, like: Tensor) -> Tensor:
    return values.float().view(1, -1, *[1] * (like.dim() - 2))


def stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation per channel."""
    variance, mean = torch.var_mean(input.float(), _dims(input), correction=0)
    return mean, torch.rsqrt(variance + eps)


def gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Combine the statistics of all ranks (rows) and update the running ones, the variance without bias."""
    weights = counts.float().view(-1, 1)
    total = weights.sum()
    overall = (mean * weights).sum(0) / total
    variance = (((1 / invstd**2 - eps) + (mean - overall) ** 2) * weights).sum(0) / total
    if running_mean is not None:
        running_mean.lerp_(overall.to(running_mean.dtype), momentum)
    if running_var is not None:
        unbiased = variance * (total / (total - 1))
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return overall, torch.rsqrt(variance + eps)


def elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """Normalize, scale and shift."""
    result = (input.float() - _column(mean, input)) * _column(invstd, input)
    if weight is not None:
        result = result * _column(weight, input)
    if bias is not None:
        result = result + _column(bias, input)
    return result.to(input.dtype)


def backward_reduce(
    grad_output: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums over this rank: of the gradient, of gradient times centred input, and the gradients of weight and bias."""
    grad = grad_output.float()
    dims = _dims(input)
    sum_dy = grad.sum(dims)
    sum_dy_xmu = (grad * (input.float() - _column(mean, input))).sum(dims)
    dtype = torch.float32 if weight is None else weight.dtype
    return sum_dy, sum_dy_xmu, (sum_dy_xmu * invstd).to(dtype), sum_dy.to(dtype)


def backward_elemt(
    grad_output: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """Gradient of the input from the sums over all ranks."""
    total = count.sum().float()
    centred = input.float() - _column(mean, input)
    projected = centred * _column(invstd**2 * sum_dy_xmu / total, input)
    grad = (grad_output.float() - _column(sum_dy / total, input) - projected) * _column(invstd, input)
    return (grad if weight is None else grad * _column(weight, input)).to(input.dtype)


def install() -> None:
    """Replace the `torch.batch_norm_*` functions, which exist for devices only."""
    replace("torch.batch_norm_stats", stats)
    replace("torch.batch_norm_gather_stats_with_counts", gather_stats_with_counts)
    replace("torch.batch_norm_elemt", elemt)
    replace("torch.batch_norm_backward_reduce", backward_reduce)
    replace("torch.batch_norm_backward_elemt", backward_elemt)
