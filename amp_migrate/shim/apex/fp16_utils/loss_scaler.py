"""The loss scalers of the first FP16_Optimizer, driven by hand."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .. import deprecated_warning
from .fp16util import DEPRECATION, to_python_float

__all__ = ["DynamicLossScaler", "LossScaler", "to_python_float"]

Grads = tuple[torch.Tensor, ...]


class _Scaler:
    cur_scale: float

    @property
    def loss_scale(self) -> float:
        return self.cur_scale

    def scale_gradient(self, module: object, grad_in: Grads, grad_out: Grads) -> Grads:
        """A module backward hook that scales the gradients passing through."""
        return tuple(self.loss_scale * grad for grad in grad_in)

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> None:
        (loss * self.loss_scale).backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]


class LossScaler(_Scaler):
    """A static loss scale (default 1), which never sees an overflow."""

    def __init__(self, scale: float = 1) -> None:
        deprecated_warning(DEPRECATION)
        self.cur_scale = scale

    def has_overflow(self, params: Iterable[torch.Tensor]) -> bool:
        return False

    @staticmethod
    def _has_inf_or_nan(x: torch.Tensor) -> bool:
        return False

    def update_scale(self, overflow: bool) -> None:
        """A static scale stays."""


class DynamicLossScaler(_Scaler):
    """A loss scale that shrinks on overflow, never below 1, and grows after `scale_window` clean iterations.

    init_scale: default 2**32. scale_factor: default 2. scale_window: iterations, default 1000.
    """

    def __init__(self, init_scale: float = 2**32, scale_factor: float = 2.0, scale_window: int = 1000) -> None:
        self.cur_scale = init_scale
        self.cur_iter = 0
        self.last_overflow_iter = -1
        self.scale_factor = scale_factor
        self.scale_window = scale_window

    def has_overflow(self, params: Iterable[torch.Tensor]) -> bool:
        return any(p.grad is not None and self._has_inf_or_nan(p.grad.data) for p in params)

    @staticmethod
    def _has_inf_or_nan(x: torch.Tensor) -> bool:
        # An infinite or undefined sum, in fp32: one pass over the data and one number to fetch.
        return not bool(torch.isfinite(x.float().sum()))

    def update_scale(self, overflow: bool) -> None:
        if overflow:
            self.cur_scale = max(self.cur_scale / self.scale_factor, 1)
            self.last_overflow_iter = self.cur_iter
        elif (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            self.cur_scale *= self.scale_factor
        self.cur_iter += 1
