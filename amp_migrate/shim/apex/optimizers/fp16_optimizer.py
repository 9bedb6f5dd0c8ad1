"""The FP16_Optimizer that was written for FusedAdam: scales once per step, and hands the step what limits its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import fp16_utils
from .fused_adam import FusedAdam


class FP16_Optimizer(fp16_utils.FP16_Optimizer):
    """Wraps a FusedAdam over fp16 weights; gradients stay scaled until `step`, which clips those of each group.

    static_loss_scale: default 1.0; a step whose gradients overflow is skipped here, too.
    dynamic_loss_scale: start at 65536, double after 1000 clean steps, halve after an overflow, never below 1.
    Raises SystemError for dynamic_loss_args, TypeError for another optimizer than FusedAdam, and, in `step`, for a closure.
    https://github.com/NVIDIA/apex/tree/master/apex/contrib/optimizers
    """

    def __init__(
        self,
        init_optimizer: torch.optim.Optimizer,
        static_loss_scale: float = 1.0,
        dynamic_loss_scale: bool = False,
        dynamic_loss_args: dict[str, Any] | None = None,
        verbose: bool = True,
    ) -> None:
        if dynamic_loss_args is not None:
            raise SystemError("Do not support dynamic loss scale args for now.")
        if not isinstance(init_optimizer, FusedAdam):
            raise TypeError(f"{type(init_optimizer).__name__}.step takes no scale and no norms: FusedAdam does")
        moving = {"scale_window": 1000, "min_loss_scale": 1.0, "max_loss_scale": float("inf")}
        super().__init__(
            init_optimizer, static_loss_scale, dynamic_loss_scale, moving if dynamic_loss_scale else None, verbose
        )
        init_optimizer._given_norms = True

    def zero_grad(self, set_grads_to_None: bool = True) -> None:
        super().zero_grad(set_grads_to_None)

    def backward(self, loss: torch.Tensor) -> None:  # type: ignore[override]
        """Backward through `loss.float() * loss scale`; the gradients stay scaled."""
        super().backward(loss, update_master_grads=False)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Unscale, limit each group's norm to its `max_grad_norm`, and update; nothing after an overflow."""
        if closure is not None:
            raise TypeError("FP16_Optimizer over FusedAdam takes no closure")
        self.update_master_grads()
        for group in self.param_groups:
            grads = [p.grad for p in group["params"] if p.grad is not None]
            if not grads:
                continue
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
            self.overflow = self.overflow or not bool(torch.isfinite(norm))
            limit = group.get("max_grad_norm", 0.0)
            excess = float(norm + 1e-6) / limit if limit > 0 else 0.0
            if excess > 1 and not self.overflow:
                torch._foreach_div_(grads, excess)
        return super().step()
