"""SGD that can step float32 masters and write their float16 copies in one go."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..multi_tensor_apply import kernels, multi_tensor_applier
from ._fused import Closure, FusedOptimizer

_REQUIRED: Any = object()


class FusedSGD(FusedOptimizer):
    """SGD with momentum, dampening and Nesterov momentum; the first gradient starts the momentum undampened.

    `wd_after_momentum` adds the weight decay after the momentum. Under `apex.amp` at O2 the step reads the lists of
    `_amp_stash` and also writes the model's float16 weights; unless `materialize_master_grads`, it takes the model's
    scaled gradients and divides them by `most_recent_scale`.
    Raises ValueError for negative settings, and for Nesterov momentum with dampening or without momentum.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = _REQUIRED,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        wd_after_momentum: bool = False,
        materialize_master_grads: bool = True,
        set_grad_none: bool = False,
    ) -> None:
        if lr is not _REQUIRED and lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
        }
        super().__init__(params, defaults)
        if any(group["lr"] is _REQUIRED for group in self.param_groups):
            raise ValueError("parameter group didn't specify a value of required optimization parameter lr")
        self.wd_after_momentum = wd_after_momentum
        self.materialize_master_grads = materialize_master_grads
        self.most_recent_scale = 1.0
        self.scale_set_by_backward = False
        self.set_grad_none = set_grad_none
        self._dummy_overflow_buf = self._overflow_buffer()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("nesterov", False)

    def get_momentums(self, params: list[Tensor]) -> tuple[list[Tensor], bool]:
        """The momentum buffers, made where missing, and whether this is their first use."""
        first_run = True
        for p in params:
            first_run = "momentum_buffer" not in self.state[p]
            if first_run:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p.data)
        return [self.state[p]["momentum_buffer"] for p in params], first_run

    def step(self, closure: Closure | None = None) -> Any:
        """One step; returns the closure's loss."""
        loss = closure() if closure is not None else None
        stash = getattr(self, "_amp_stash", None)
        masters = hasattr(stash, "fp32_from_fp16_groups")
        for index, group in enumerate(self.param_groups):
            sets = self._master_sets(stash, index) if masters else self._plain_sets(group["params"])
            for grads, params, copies in sets:
                if not params:
                    continue
                momentums, first_run = self.get_momentums(params)
                lists = [grads, [p.data for p in params], momentums, *([copies] if copies else [])]
                multi_tensor_applier(
                    kernels.multi_tensor_sgd,
                    None,
                    lists,
                    group["weight_decay"],
                    group["momentum"],
                    group["dampening"],
                    group["lr"],
                    group["nesterov"],
                    first_run,
                    self.wd_after_momentum,
                    1.0 / self.most_recent_scale,
                )
        self.most_recent_scale = 1.0
        self.scale_set_by_backward = False
        return loss

    def _plain_sets(self, params: list[Tensor]) -> list[tuple[list[Tensor], list[Tensor], list[Tensor]]]:
        found = self._with_gradients(params)
        halves = [p for p in found if p.dtype == torch.float16]
        floats = [p for p in found if p.dtype == torch.float32]
        return [(_grads(halves), halves, []), (_grads(floats), floats, [])]

    def _master_sets(self, stash: Any, index: int) -> list[tuple[list[Tensor], list[Tensor], list[Tensor]]]:
        floats = self._with_gradients(stash.fp32_from_fp32_groups[index])
        pairs = list(zip(stash.fp16_groups[index], stash.fp32_from_fp16_groups[index], strict=True))
        if self.materialize_master_grads:
            pairs = [(half, master) for half, master in pairs if master.grad is not None]
            grads = _grads([master for _, master in pairs])
        else:
            pairs = [(half, master) for half, master in pairs if half.grad is not None]
            grads = _grads([half for half, _ in pairs])
        copies = [half.data for half, _ in pairs]
        return [(grads, [master for _, master in pairs], copies), (_grads(floats), floats, [])]


def _grads(params: list[Tensor]) -> list[Tensor]:
    return [p.grad.data for p in params if p.grad is not None]
