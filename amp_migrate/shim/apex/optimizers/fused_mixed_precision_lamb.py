"""LAMB that keeps float32 copies of low precision parameters and understands GradScaler."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..multi_tensor_apply import kernels, multi_tensor_applier
from ._fused import Closure


class FusedMixedPrecisionLamb(torch.optim.Optimizer):
    """LAMB whose learning rate and step count are tensors on the device.

    Parameters of `reduced_precision_dtype` are stepped through float32 copies made at the first step; their moments
    are float32. `step(grad_scaler=scaler)` takes scaled gradients and skips the step on overflow.
    Raises RuntimeError for `amsgrad`.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        step: int = 0,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
        reduced_precision_dtype: torch.dtype | None = None,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLAMB does not support the AMSGrad variant.")
        defaults = {
            "lr": torch.tensor(lr, dtype=torch.float32),
            "step": torch.tensor([step], dtype=torch.int),
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "max_grad_norm": max_grad_norm,
        }
        super().__init__(params, defaults)
        device = self.param_groups[0]["params"][0].device
        for group in self.param_groups:
            group["lr"], group["step"] = group["lr"].to(device=device), group["step"].to(device=device)
        self._dummy_overflow_buf = torch.zeros(1, dtype=torch.int, device=device)
        self.reduced_precision_dtype = reduced_precision_dtype
        self.param_groups_full_precision: list[dict[str, list[Tensor]]] = []
        self._step_supports_amp_scaling = True
        self.adam_w_mode = 1 if adam_w_mode else 0
        self.use_nvlamb = use_nvlamb

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group with its own copies of the default tensors."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for name, value in self.defaults.items():
            if isinstance(value, Tensor):
                group[name] = group[name].clone()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; moments keep the dtype they were saved in."""
        super().load_state_dict(state_dict)
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            for p, index in zip(group["params"], saved["params"], strict=True):
                for name, value in state_dict["state"].get(index, {}).items():
                    self.state[p][name] = value.to(device=p.device, copy=True)

    @torch.no_grad()
    def step(self, closure: Closure | None = None, grad_scaler: Any = None) -> Any:
        """One step; returns the closure's loss."""
        loss = closure() if closure is not None else None
        if not self.param_groups_full_precision:
            self.param_groups_full_precision = [
                {"params": [self._full_precision(p) for p in group["params"]]} for group in self.param_groups
            ]
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        device = self.param_groups[0]["params"][0].device
        scale, found_inf = torch.ones(1, device=device), torch.zeros(1, device=device)
        if grad_scaler is not None:
            found_inf = grad_scaler._check_inf_per_device(self)[device]
            scale = grad_scaler._get_scale_async()
        self._dummy_overflow_buf.copy_(found_inf)
        skipped = bool(self._dummy_overflow_buf.item())
        norm, _ = multi_tensor_applier(kernels.multi_tensor_l2norm_mp, self._dummy_overflow_buf, [gradients], False)
        for group, full in zip(self.param_groups, self.param_groups_full_precision, strict=True):
            group["step"] += 0 if skipped else 1
            multi_tensor_applier(
                kernels.multi_tensor_lamb_mp,
                self._dummy_overflow_buf,
                self._state_lists(group["params"], full["params"]),
                group["lr"],
                *group["betas"],
                group["eps"],
                group["step"],
                group["bias_correction"],
                group["weight_decay"],
                group["grad_averaging"],
                self.adam_w_mode,
                norm,
                self.defaults["max_grad_norm"] * scale,
                self.use_nvlamb,
                found_inf,
                scale.double().reciprocal().float(),
            )
        return loss

    def _full_precision(self, p: Tensor) -> Tensor:
        return p.detach().float().clone() if p.dtype == self.reduced_precision_dtype else p.data

    def _state_lists(self, params: list[Tensor], full: list[Tensor]) -> list[list[Tensor]]:
        lists: list[list[Tensor]] = [[], [], [], [], []]
        for p, p_full in zip(params, full, strict=True):
            if p.grad is None:
                continue
            if not self.state[p]:
                self.state[p]["exp_avg"] = torch.zeros_like(p_full)
                self.state[p]["exp_avg_sq"] = torch.zeros_like(p_full)
            row = (p.grad.data, p_full, self.state[p]["exp_avg"], self.state[p]["exp_avg_sq"], p.data)
            for column, tensor in zip(lists, row, strict=True):
                column.append(tensor)
        return lists if self.reduced_precision_dtype is not None else lists[:4]
