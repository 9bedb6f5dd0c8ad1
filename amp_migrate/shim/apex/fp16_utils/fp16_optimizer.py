"""FP16_Optimizer: fp32 masters and loss scaling around an ordinary optimizer, before there was `apex.amp`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import deprecated_warning
from .._device import is_device_tensor, type_name
from ..amp._amp_state import maybe_print
from ..amp.scaler import LossScaler
from .fp16util import DEPRECATION, clip_grad_norm

Params = list[torch.Tensor]


class FP16_Optimizer:
    """Wraps an optimizer; `optimizer.backward(loss)` takes the place of `loss.backward()`.

    static_loss_scale: default 1.0. dynamic_loss_scale: ignore the static one and adapt.
    dynamic_loss_args: keyword arguments of `apex.amp.scaler.LossScaler` (init_scale, scale_window, ...).
    verbose: print what each parameter group holds.

    Raises TypeError for parameters that are not fp16 or fp32 on a CUDA device.
    https://nvidia.github.io/apex/fp16_utils.html#apex.fp16_utils.FP16_Optimizer
    """

    def __init__(
        self,
        init_optimizer: torch.optim.Optimizer,
        static_loss_scale: float = 1.0,
        dynamic_loss_scale: bool = False,
        dynamic_loss_args: dict[str, Any] | None = None,
        verbose: bool = True,
    ) -> None:
        print("Warning:  FP16_Optimizer is deprecated; use the native torch.amp instead.")
        deprecated_warning(DEPRECATION)
        self.verbose = verbose
        self.optimizer = init_optimizer
        self.fp16_groups: list[Params] = []
        self.fp32_from_fp16_groups: list[Params] = []
        self.fp32_from_fp32_groups: list[Params] = []
        for i, group in enumerate(self.optimizer.param_groups):
            self.maybe_print(f"FP16_Optimizer: parameter group {i}")
            self._take_group(group)
        self.all_fp16_params = [p for group in self.fp16_groups for p in group]
        self.all_fp32_from_fp16_params = [p for group in self.fp32_from_fp16_groups for p in group]
        self.all_fp32_from_fp32_params = [p for group in self.fp32_from_fp32_groups for p in group]
        # Loading its own state makes the optimizer cast per-parameter state to the masters' type.
        self.optimizer.load_state_dict(self.optimizer.state_dict())

        self.dynamic_loss_scale = bool(dynamic_loss_scale)
        if dynamic_loss_scale:
            self.loss_scaler = LossScaler("dynamic", **(dynamic_loss_args or {}))
        else:
            self.loss_scaler = LossScaler(static_loss_scale)
        self.overflow = False
        self.first_closure_call_this_step = True
        self.clip_grad_norm = clip_grad_norm

    def _take_group(self, group: dict[str, Any]) -> None:
        fp16: Params = []
        masters: Params = []
        fp32: Params = []
        for i, param in enumerate(group["params"]):
            if not param.requires_grad:
                continue
            if not is_device_tensor(param) or param.dtype not in (torch.float16, torch.float32):
                raise TypeError(
                    "Wrapped parameters must be either torch.cuda.FloatTensor or torch.cuda.HalfTensor. "
                    f"Received {type_name(param)}"
                )
            self.maybe_print(f"FP16_Optimizer: {type_name(param)} of {tuple(param.size())}")
            if param.dtype == torch.float32:
                fp32.append(param)
                continue
            master = param.detach().clone().float().requires_grad_()
            group["params"][i] = master
            fp16.append(param)
            masters.append(master)
            if param in self.optimizer.state:
                self.optimizer.state[master] = self.optimizer.state.pop(param)
        self.fp16_groups.append(fp16)
        self.fp32_from_fp16_groups.append(masters)
        self.fp32_from_fp32_groups.append(fp32)

    def maybe_print(self, msg: str) -> None:
        if self.verbose:
            print(msg)

    def __getstate__(self) -> dict[str, Any]:
        raise RuntimeError("FP16_Optimizer should be serialized using state_dict().")

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise RuntimeError("FP16_Optimizer should be deserialized using load_state_dict().")

    def _master_params(self) -> Iterator[torch.Tensor]:
        for group in self.optimizer.param_groups:
            yield from group["params"]

    def zero_grad(self, set_grads_to_None: bool = False) -> None:
        """Zero (or drop) the gradients of the masters and of the fp16 model parameters."""
        for param in [*self._master_params(), *self.all_fp16_params]:
            if set_grads_to_None:
                param.grad = None
            elif param.grad is not None:
                param.grad.detach_()
                param.grad.zero_()

    def _master_params_to_model_params(self) -> None:
        if self.all_fp16_params:
            torch._foreach_copy_(
                [p.data for p in self.all_fp16_params], [p.data for p in self.all_fp32_from_fp16_params]
            )

    def clip_master_grads(self, max_norm: float, norm_type: float = 2) -> torch.Tensor | int:
        """Clip the unscaled master gradients and return their norm; -1 after an overflow."""
        if self.overflow:
            return -1
        return self.clip_grad_norm(list(self._master_params()), max_norm, norm_type)

    def state_dict(self) -> dict[str, Any]:
        """Everything to resume from, the fp32 masters and the loss scaler object included."""
        return {
            "loss_scaler": self.loss_scaler,
            "dynamic_loss_scale": self.dynamic_loss_scale,
            "overflow": self.overflow,
            "first_closure_call_this_step": self.first_closure_call_this_step,
            "optimizer_state_dict": self.optimizer.state_dict(),
            "fp32_from_fp16": self.fp32_from_fp16_groups,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the masters come back exactly, not through fp16."""
        self.loss_scaler = state_dict["loss_scaler"]
        self.dynamic_loss_scale = state_dict["dynamic_loss_scale"]
        self.overflow = state_dict["overflow"]
        self.first_closure_call_this_step = state_dict["first_closure_call_this_step"]
        self.optimizer.load_state_dict(state_dict["optimizer_state_dict"])
        for group, saved_group in zip(self.fp32_from_fp16_groups, state_dict["fp32_from_fp16"], strict=False):
            for master, saved in zip(group, saved_group, strict=False):
                master.data.copy_(saved.data)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the masters and copy them into the model; nothing after an overflow.

        A closure must call this object's `zero_grad` and `backward`. While its backward overflows it is called
        again under the reduced scale.
        """
        if self.overflow:
            maybe_print(f"Gradient overflow: skipping this step, loss scale is now {self.loss_scale}")
            return None
        result = self.optimizer.step() if closure is None else self._step_with_closure(closure)
        self._master_params_to_model_params()
        return result

    def _step_with_closure(self, closure: Callable[[], Any]) -> Any:
        def evaluate() -> Any:
            if self.first_closure_call_this_step:
                self.first_closure_call_this_step = False
            else:
                # The optimizer moved the masters since the last evaluation; the model has to follow.
                self._master_params_to_model_params()
            loss = closure()
            while self.overflow:
                print(f"Overflow within closure: evaluating again with loss scale {self.loss_scale}")
                loss = closure()
            return loss

        result = self.optimizer.step(evaluate)
        self.first_closure_call_this_step = True
        return result

    def backward(self, loss: torch.Tensor, update_master_grads: bool = True, retain_graph: bool = False) -> None:
        """Backward through `loss.float() * loss scale`.

        update_master_grads: False leaves the master gradients for a later `update_master_grads()`, as for several
            losses per step.
        """
        (loss.float() * self.loss_scale).backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
        if update_master_grads:
            self.update_master_grads()

    def update_master_grads(self) -> None:
        """Unscale the model's gradients into the masters and update the loss scale."""
        self.loss_scaler.clear_overflow_state()
        model_grads: Params = []
        master_grads: Params = []
        for model, master in zip(self.all_fp16_params, self.all_fp32_from_fp16_params, strict=True):
            if model.grad is not None:
                if master.grad is None:
                    master.grad = torch.empty_like(master)
                model_grads.append(model.grad)
                master_grads.append(master.grad)
        fp32_grads = [p.grad for p in self.all_fp32_from_fp32_params if p.grad is not None]
        self.loss_scaler.unscale(model_grads + fp32_grads, master_grads + fp32_grads)
        self.overflow = self.loss_scaler.update_scale()

    def inspect_master_grad_data(self) -> list[list[torch.Tensor | None]] | None:
        """The unscaled gradients of each parameter group; None (and a printed warning) after an overflow."""
        if self.overflow:
            print("Warning:  FP16_Optimizer gradients are invalid after an overflow. Returning None.")
            return None
        return [
            [None if param.grad is None else param.grad.data for param in group["params"]]
            for group in self.optimizer.param_groups
        ]

    @property
    def loss_scale(self) -> float:
        return self.loss_scaler.loss_scale()

    @loss_scale.setter
    def loss_scale(self, value: float) -> None:
        self.loss_scaler._loss_scale = value

    @property
    def state(self) -> Any:
        return self.optimizer.state

    @state.setter
    def state(self, value: Any) -> None:
        self.optimizer.state = value

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, value: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = value
