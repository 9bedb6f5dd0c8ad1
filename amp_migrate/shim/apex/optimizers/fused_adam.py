"""Adam and AdamW with moments in float32 (https://nvidia.github.io/apex/optimizers.html#apex.optimizers.FusedAdam)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..multi_tensor_apply import kernels, multi_tensor_applier
from ._fused import Closure, FusedOptimizer

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class FusedAdam(FusedOptimizer):
    """Adam with decoupled weight decay, or with L2 regularization if `adam_w_mode` is false.

    `master_weights` (needs `capturable`) keeps float32 copies of the parameters and steps those. With `capturable`,
    `step(grad_scaler=scaler)` unscales the gradients and skips the step on overflow by itself.
    `max_grad_norm` (default 0.0: none) is of the FusedAdam until 2019, and works under `apex.optimizers.FP16_Optimizer`
    alone, which limits the norms of each group's gradients for it.
    Raises RuntimeError for `amsgrad` and `eps_inside_sqrt`.
    """

    _given_norms = False  # whether an FP16_Optimizer computes the norms

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
        capturable: bool = False,
        master_weights: bool = False,
        *,
        max_grad_norm: float = 0.0,
        eps_inside_sqrt: bool = False,
    ) -> None:
        if eps_inside_sqrt:
            raise RuntimeError("amp-migrate's stand-in has no FusedAdam(eps_inside_sqrt=True).")
        if amsgrad:
            raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
        if master_weights and not capturable:
            raise RuntimeError("Master weights is currently only supported with the capturable version.")
        lr = torch.tensor(lr, dtype=torch.float32) if capturable else lr
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            **({"max_grad_norm": max_grad_norm} if max_grad_norm else {}),
        }
        super().__init__(params, defaults)
        self.adam_w_mode = 1 if adam_w_mode else 0
        self.set_grad_none = set_grad_none
        self.capturable = capturable
        self.master_weights = master_weights
        self._dummy_overflow_buf = self._overflow_buffer()
        self.param_groups_master = [
            {"params": [p.clone().detach().float() if master_weights else None for p in group["params"]]}
            for group in self.param_groups
        ]
        if capturable:
            self._step_supports_amp_scaling = True
            for group in self.param_groups:
                if group["params"]:
                    group["lr"] = group["lr"].to(device=group["params"][0].device)

    def step(
        self,
        closure: Closure | None = None,
        grads: Any = None,
        output_params: Any = None,
        scale: Any = None,
        grad_norms: Any = None,
        grad_scaler: Any = None,
    ) -> Any:
        """One step; returns the closure's loss. Raises RuntimeError for the arguments of old versions."""
        if any(given is not None for given in (grads, output_params, scale, grad_norms)):
            raise RuntimeError(
                "FusedAdam has been updated. Construct it like torch.optim.Adam and call step() with no arguments."
            )
        if not self._given_norms and any(group.get("max_grad_norm") for group in self.param_groups):
            raise TypeError("FusedAdam(max_grad_norm=...) clips only under apex.optimizers.FP16_Optimizer")
        loss = closure() if closure is not None else None
        # Counted one step late, when it is known whether the step before was taken: no wait for the device.
        taken = (self._dummy_overflow_buf != 1).to(torch.int)
        for group, masters in zip(self.param_groups, self.param_groups_master, strict=False):
            if not group["params"]:
                continue
            if self.capturable:
                self._capturable_step(group, masters["params"], grad_scaler, taken)
            else:
                self._step(group)
        return loss

    def _step(self, group: dict[str, Any]) -> None:
        step = self._next_step(group)
        for _, lists in self._lists(group["params"], _DTYPES, _MOMENTS):
            multi_tensor_applier(
                kernels.multi_tensor_adam,
                self._dummy_overflow_buf,
                lists,
                group["lr"],
                *group["betas"],
                group["eps"],
                step,
                self.adam_w_mode,
                group["bias_correction"],
                group["weight_decay"],
            )

    def _capturable_step(
        self, group: dict[str, Any], masters: list[Tensor | None], grad_scaler: Any, taken: Tensor
    ) -> None:
        device = group["params"][0].device
        inv_scale = torch.ones(1, device=device)
        if grad_scaler is not None:
            self._dummy_overflow_buf.copy_(grad_scaler._check_inf_per_device(self)[device])
            inv_scale = grad_scaler._get_scale_async().double().reciprocal().float()
        else:
            self._dummy_overflow_buf.zero_()
        if "step" not in group:
            group["step"] = torch.ones(1, dtype=torch.int, device=device)
        else:
            group["step"] += taken
        master_of = dict(zip(group["params"], masters, strict=False))
        for dtype, lists in self._lists(group["params"], _DTYPES, _MOMENTS):
            kernel: Callable[..., None] = kernels.multi_tensor_adam_capturable
            if self.master_weights:
                kernel = kernels.multi_tensor_adam_capturable_master
                chosen = [master_of[p] for p in self._with_gradients(group["params"]) if p.dtype == dtype]
                lists.append([master for master in chosen if master is not None])
            multi_tensor_applier(
                kernel,
                self._dummy_overflow_buf,
                lists,
                group["lr"],
                *group["betas"],
                group["eps"],
                group["step"],
                self.adam_w_mode,
                group["bias_correction"],
                group["weight_decay"],
                inv_scale,
            )


_MOMENTS: dict[str, torch.dtype | None] = {"exp_avg": torch.float32, "exp_avg_sq": torch.float32}
