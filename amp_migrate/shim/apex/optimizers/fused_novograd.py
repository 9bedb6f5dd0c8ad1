"""NovoGrad (https://arxiv.org/abs/1905.11286): one running gradient norm per tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..multi_tensor_apply import kernels, multi_tensor_applier
from ._fused import Closure, FusedOptimizer

_DTYPES = (torch.float16, torch.float32)


class FusedNovoGrad(FusedOptimizer):
    """NovoGrad. The norms of a group are in `group["exp_avg_sq"]`: one tensor for float16 parameters, one for float32.

    `norm_type` is 2 (Euclidean) or 0 (largest magnitude); `init_zero` starts the norms at zero rather than at those of
    the first gradients; `reg_inside_moment` normalizes and decays before the moment. Raises RuntimeError for `amsgrad`
    and for another norm.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        reg_inside_moment: bool = False,
        grad_averaging: bool = True,
        norm_type: int = 2,
        init_zero: bool = False,
        set_grad_none: bool = True,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedNovoGrad does not support the AMSGrad variant.")
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "norm_type": norm_type,
            "init_zero": init_zero,
        }
        super().__init__(params, defaults)
        self.moment_mode = 0 if reg_inside_moment else 1
        self.set_grad_none = set_grad_none
        self._dummy_overflow_buf = self._overflow_buffer()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; the norms follow the parameters to their device."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            if group["params"] and "exp_avg_sq" in group:
                group["exp_avg_sq"] = [norms.to(group["params"][0].device) for norms in group["exp_avg_sq"]]

    def step(self, closure: Closure | None = None) -> Any:
        """One step; returns the closure's loss."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            step = self._next_step(group)
            lists = dict(self._lists(group["params"], _DTYPES, {"exp_avg": None}))
            if "exp_avg_sq" not in group:
                group["exp_avg_sq"] = [
                    self._first_norms(group, lists[dtype][0] if dtype in lists else []) for dtype in _DTYPES
                ]
            for dtype, norms in zip(_DTYPES, group["exp_avg_sq"], strict=True):
                if dtype not in lists:
                    continue
                multi_tensor_applier(
                    kernels.multi_tensor_novograd,
                    self._dummy_overflow_buf,
                    lists[dtype],
                    norms,
                    group["lr"],
                    *group["betas"],
                    group["eps"],
                    step,
                    group["bias_correction"],
                    group["weight_decay"],
                    group["grad_averaging"],
                    self.moment_mode,
                    group["norm_type"],
                )
        return loss

    def _first_norms(self, group: dict[str, Any], gradients: list[Tensor]) -> Tensor:
        if group["norm_type"] not in (0, 2):
            raise RuntimeError("FusedNovoGrad only support l2/inf norm now.")
        if group["init_zero"] or not gradients:
            return torch.zeros(len(gradients), device=group["params"][0].device)
        order = 2.0 if group["norm_type"] == 2 else float("inf")
        return torch.stack([torch.linalg.vector_norm(g.float(), order) for g in gradients])
