"""LAMB (https://arxiv.org/abs/1904.00962), with clipping of the global gradient norm built in."""

from __future__ import annotations

from typing import Any

import torch

from ..multi_tensor_apply import kernels, multi_tensor_applier
from ._fused import Closure, FusedOptimizer


class FusedLAMB(FusedOptimizer):
    """LAMB. The norm of all gradients is limited to `max_grad_norm` before the moments.

    Parameters without weight decay take the plain learning rate unless `use_nvlamb`. After a step the gradients hold
    the update, as in Apex. Raises RuntimeError for `amsgrad`.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLAMB does not support the AMSGrad variant.")
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "max_grad_norm": max_grad_norm,
        }
        super().__init__(params, defaults)
        self.adam_w_mode = 1 if adam_w_mode else 0
        self.set_grad_none = set_grad_none
        self.use_nvlamb = use_nvlamb
        self._dummy_overflow_buf = self._overflow_buffer()

    def step(self, closure: Closure | None = None) -> Any:
        """One step; returns the closure's loss."""
        loss = closure() if closure is not None else None
        every = [p for group in self.param_groups for p in self._with_gradients(group["params"])]
        if not every:
            return loss
        gradients = [p.grad.data for p in every if p.grad is not None]
        norm, _ = multi_tensor_applier(kernels.multi_tensor_l2norm, self._dummy_overflow_buf, [gradients], False)
        states: dict[str, torch.dtype | None] = {"exp_avg": None, "exp_avg_sq": None}
        for group in self.param_groups:
            step = self._next_step(group)
            for _, lists in self._lists(group["params"], (torch.float16, torch.float32), states):
                multi_tensor_applier(
                    kernels.multi_tensor_lamb,
                    self._dummy_overflow_buf,
                    lists,
                    group["lr"],
                    *group["betas"],
                    group["eps"],
                    step,
                    group["bias_correction"],
                    group["weight_decay"],
                    group["grad_averaging"],
                    self.adam_w_mode,
                    norm,
                    self.defaults["max_grad_norm"],
                    self.use_nvlamb,
                )
        return loss
