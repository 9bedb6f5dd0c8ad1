"""`optimizer._amp_stash`: an optimizer's parameters sorted by type, and the gradients kept across backward passes.

Every backward pass starts from empty gradients, so that only the new ones are unscaled and checked; what was
there before is stashed and added afterwards. The attribute names are read by programs and by FusedSGD.
"""

from __future__ import annotations

from typing import Any

import torch

from .._device import is_device_tensor, type_name
from .scaler import LossScaler

Params = list[torch.Tensor]
Grads = list["torch.Tensor | None"]
# The scales that the new gradients have, the stashed ones have, and the result shall have.
Scales = tuple[float, float, float]


class AmpOptimizerState:
    """What both kinds share. Parameters are sorted lazily, at the first `scale_loss` or `zero_grad`."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self.lazy_init_called = False
        self.already_patched = False
        self.params_have_scaled_gradients = False

    def ensure_initialized(self) -> None:
        if not self.lazy_init_called:
            self._optimizer._lazy_init_maybe_master_weights()
            self.lazy_init_called = True

    def discard_master_grads(self) -> None:
        """Drop the gradients that zeroing the model would not reach."""


class NoMasterWeights(AmpOptimizerState):
    """The optimizer updates the model's own parameters: O0, O1, O3."""

    all_fp16_params: Params
    all_fp32_params: Params
    all_fp16_grad_stash: Grads
    all_fp32_grad_stash: Grads

    def lazy_init(self) -> None:
        self.all_fp16_params, self.all_fp32_params = [], []
        self.all_fp16_grad_stash, self.all_fp32_grad_stash = [], []
        for group in self._optimizer.param_groups:
            self.take_group(group)

    def take_group(self, group: dict[str, Any]) -> None:
        for param in group["params"]:
            if is_half(param):
                self.all_fp16_params.append(param)
                self.all_fp16_grad_stash.append(None)
            else:
                self.all_fp32_params.append(param)
                self.all_fp32_grad_stash.append(None)

    def prepare_backward(self) -> None:
        self.ensure_initialized()
        stash_grads(self.all_fp16_params, self.all_fp16_grad_stash)
        stash_grads(self.all_fp32_params, self.all_fp32_grad_stash)

    def post_backward(self, scaler: LossScaler) -> None:
        self.ensure_initialized()
        unscale_in_place(scaler, self.all_fp16_params, self.all_fp16_grad_stash)
        unscale_in_place(scaler, self.all_fp32_params, self.all_fp32_grad_stash)


class MasterWeights(AmpOptimizerState):
    """The optimizer updates fp32 copies of the fp16 parameters: O2, or `master_weights=True`.

    The model's fp16 gradients stay scaled; unscaled fp32 gradients go to the masters.
    """

    fp16_groups: list[Params]
    fp32_from_fp16_groups: list[Params]
    fp32_from_fp32_groups: list[Params]
    all_fp16_params: Params
    all_fp32_from_fp16_params: Params
    all_fp32_from_fp32_params: Params
    all_fp16_grad_stash: Grads
    all_fp32_from_fp32_grad_stash: Grads

    def lazy_init(self) -> None:
        self.fp16_groups, self.fp32_from_fp16_groups, self.fp32_from_fp32_groups = [], [], []
        self.all_fp16_params, self.all_fp32_from_fp16_params, self.all_fp32_from_fp32_params = [], [], []
        self.all_fp16_grad_stash, self.all_fp32_from_fp32_grad_stash = [], []
        optimizer = self._optimizer
        for group in optimizer.param_groups:
            self.take_group(group)
        for param in self.all_fp32_from_fp32_params:
            param.grad = None
        # Loading its own state makes the optimizer cast per-parameter state (momenta) to the masters' type.
        optimizer.load_state_dict(optimizer.state_dict())

    def take_group(self, group: dict[str, Any]) -> None:
        """Put fp32 masters in place of the group's fp16 parameters, and their optimizer state with them."""
        state = self._optimizer.state
        fp16: Params = []
        masters: Params = []
        fp32: Params = []
        for i, param in enumerate(group["params"]):
            if not param.requires_grad:
                continue
            if is_half(param):
                master = param.detach().clone().float().requires_grad_()
                group["params"][i] = master
                fp16.append(param)
                masters.append(master)
                if param in state:
                    state[master] = state.pop(param)
            else:
                fp32.append(param)
        self.fp16_groups.append(fp16)
        self.fp32_from_fp16_groups.append(masters)
        self.fp32_from_fp32_groups.append(fp32)
        self.all_fp16_params += fp16
        self.all_fp32_from_fp16_params += masters
        self.all_fp32_from_fp32_params += fp32
        self.all_fp16_grad_stash += [None] * len(fp16)
        self.all_fp32_from_fp32_grad_stash += [None] * len(fp32)

    def prepare_backward(self) -> None:
        self.ensure_initialized()
        for param in self.all_fp16_params:
            param.grad = None  # earlier ones are already in the masters' gradients
        stash_grads(self.all_fp32_from_fp32_params, self.all_fp32_from_fp32_grad_stash)

    def post_backward(self, scaler: LossScaler) -> None:
        self.ensure_initialized()
        new: Params = []
        new_master: Params = []
        more: Params = []
        accumulated: Params = []
        for param, master in zip(self.all_fp16_params, self.all_fp32_from_fp16_params, strict=True):
            if param.grad is None:
                continue
            if master.grad is None:
                master.grad = torch.empty_like(master)
                new.append(param.grad)
                new_master.append(master.grad)
            else:
                more.append(param.grad)
                accumulated.append(master.grad)
        if new:
            scaler.unscale(new, new_master)
        if more:
            scaler.unscale_with_stashed(more, accumulated, accumulated)
        unscale_in_place(scaler, self.all_fp32_from_fp32_params, self.all_fp32_from_fp32_grad_stash)

    def copy_masters_to_model(self) -> None:
        if self.all_fp16_params:
            # Through .data, as the weights of a graph that is kept for another backward may change here.
            torch._foreach_copy_(
                [p.data for p in self.all_fp16_params], [p.data for p in self.all_fp32_from_fp16_params]
            )

    def after_step(self) -> None:
        self._optimizer._master_params_to_model_params()
        self.discard_master_grads()

    def discard_master_grads(self) -> None:
        for master in getattr(self, "all_fp32_from_fp16_params", ()):
            master.grad = None

    def zero_grad(self) -> None:
        """Zero the model's gradients in place and drop the masters'."""
        self.ensure_initialized()
        for param in self.all_fp16_params + self.all_fp32_from_fp32_params:
            if param.grad is not None:
                param.grad.detach_()
                param.grad.zero_()
        self.discard_master_grads()


class FusedMasterWeights(MasterWeights):
    """FusedSGD: its step writes the fp16 weights too and, unless `materialize_master_grads`, reads the model's
    scaled fp16 gradients and divides by `most_recent_scale` itself."""

    def prepare_backward(self) -> None:
        if self._optimizer.materialize_master_grads:
            super().prepare_backward()
            return
        self.ensure_initialized()
        stash_grads(self.all_fp16_params, self.all_fp16_grad_stash)
        stash_grads(self.all_fp32_from_fp32_params, self.all_fp32_from_fp32_grad_stash)

    def post_backward(self, scaler: LossScaler) -> None:
        optimizer = self._optimizer
        if optimizer.materialize_master_grads:
            super().post_backward(scaler)
            return
        self.ensure_initialized()
        have = out = scaler.loss_scale()
        if optimizer.scale_set_by_backward:
            out = min(have, optimizer.most_recent_scale)
        scales = (have, optimizer.most_recent_scale, out)
        unscale_in_place(scaler, self.all_fp16_params, self.all_fp16_grad_stash, scales)
        unscale_in_place(scaler, self.all_fp32_from_fp32_params, self.all_fp32_from_fp32_grad_stash, scales)
        optimizer.most_recent_scale = out
        optimizer.scale_set_by_backward = True

    def after_step(self) -> None:
        self.discard_master_grads()


def is_half(param: torch.Tensor) -> bool:
    """True for a CUDA fp16 parameter, False for a CUDA fp32 one; TypeError for anything else."""
    if is_device_tensor(param) and param.dtype in (torch.float16, torch.float32):
        return param.dtype == torch.float16
    raise TypeError(
        "Optimizer's parameters must be either torch.cuda.FloatTensor or torch.cuda.HalfTensor. "
        f"Received {type_name(param)}"
    )


def stash_grads(params: Params, stash: Grads) -> None:
    for i, param in enumerate(params):
        stash[i] = param.grad
        param.grad = None


def unscale_in_place(scaler: LossScaler, params: Params, stash: Grads, scales: Scales | None = None) -> None:
    """Unscale the new gradients, add the stashed ones, and empty the stash.

    With a static scale of 1.0 stashed gradients are dropped, as in Apex.
    """
    if scaler.dynamic or scaler.loss_scale() != 1.0:
        have, stashed_have, out = scales or (scaler.loss_scale(), 1.0, 1.0)
        fresh: Params = []
        more: Params = []
        stashed: Params = []
        for param, earlier in zip(params, stash, strict=True):
            if param.grad is None:
                param.grad = earlier
            elif earlier is None:
                fresh.append(param.grad)
            else:
                more.append(param.grad)
                stashed.append(earlier)
        if fresh:
            scaler.unscale(fresh, fresh, models_are_masters=True, scale_override=have / out)
        if more:
            scaler.unscale_with_stashed(more, stashed, more, scale_override=(have, stashed_have, out))
    for i in range(len(stash)):
        stash[i] = None
