"""Adagrad (https://nvidia.github.io/apex/optimizers.html)."""

from __future__ import annotations

from typing import Any

import torch

from ..multi_tensor_apply import kernels, multi_tensor_applier
from ._fused import Closure, FusedOptimizer


class FusedAdagrad(FusedOptimizer):
    """Adagrad with L2 regularization, or decoupled weight decay if `adagrad_w_mode`."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        set_grad_none: bool = True,
        adagrad_w_mode: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "eps": eps, "weight_decay": weight_decay})
        self.adagrad_w_mode = 1 if adagrad_w_mode else 0
        self.set_grad_none = set_grad_none
        self._dummy_overflow_buf = self._overflow_buffer()

    def step(self, closure: Closure | None = None) -> Any:
        """One step; returns the closure's loss."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for _, lists in self._lists(group["params"], (torch.float16, torch.float32), {"sum": None}):
                multi_tensor_applier(
                    kernels.multi_tensor_adagrad,
                    self._dummy_overflow_buf,
                    lists,
                    group["lr"],
                    group["eps"],
                    self.adagrad_w_mode,
                    group["weight_decay"],
                )
        return loss
