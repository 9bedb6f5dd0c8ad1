"""What `amp.initialize` does to an optimizer: hooks around backward, and the patched methods."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from ._optimizer_state import FusedMasterWeights, MasterWeights, NoMasterWeights

if TYPE_CHECKING:
    from .frontend import Properties

_HOOKS = (
    "_lazy_init_maybe_master_weights",
    "_master_params_to_model_params",
    "_prepare_amp_backward",
    "_post_amp_backward",
    "_amp_lazy_init",
)


def process_optimizer(optimizer: Any, properties: Properties) -> None:
    """Attach `_amp_stash` and the hooks that `scale_loss` calls.

    Raises RuntimeError for an optimizer that went through `amp.initialize` before.
    """
    if hasattr(optimizer, "_amp_stash"):
        raise RuntimeError("A given optimizer should go through amp.initialize only once.")
    for name in _HOOKS:
        if hasattr(optimizer, name):
            raise RuntimeError(f"The incoming optimizer already has an attribute {name}.")

    state: MasterWeights | NoMasterWeights
    if not properties.master_weights:
        state = NoMasterWeights(optimizer)
    elif hasattr(optimizer, "materialize_master_grads"):  # FusedSGD writes the model weights in its own step
        state = FusedMasterWeights(optimizer)
    else:
        state = MasterWeights(optimizer)

    optimizer._amp_stash = state
    optimizer._amp_lazy_init = state.ensure_initialized
    optimizer._lazy_init_maybe_master_weights = state.lazy_init
    optimizer._prepare_amp_backward = state.prepare_backward
    optimizer._post_amp_backward = state.post_backward
    if isinstance(state, MasterWeights):
        optimizer._master_params_to_model_params = state.copy_masters_to_model
        _patch_step(optimizer)
        _patch_zero_grad(optimizer)
    _patch_add_param_group(optimizer)


# The patched methods are bound methods of the optimizer, because learning rate schedulers unwrap `step.__func__`.


def _patch_step(optimizer: Any) -> None:
    step = optimizer.step

    def master_step(self: Any, closure: Any = None) -> Any:
        if closure is not None:
            raise RuntimeError("Amp does not support closures in optimizer.step.")
        result = step()
        self._amp_stash.after_step()
        return result

    optimizer.step = MethodType(master_step, optimizer)


def _patch_zero_grad(optimizer: Any) -> None:
    def zero_grad(self: Any) -> None:
        self._amp_stash.zero_grad()

    optimizer.zero_grad = MethodType(zero_grad, optimizer)


def _patch_add_param_group(optimizer: Any) -> None:
    add_param_group = optimizer.add_param_group

    def amp_add_param_group(self: Any, new_group: dict[str, Any]) -> None:
        self._amp_stash.ensure_initialized()
        if not isinstance(new_group, dict):
            raise AssertionError("param group must be a dict")
        params = new_group["params"]
        if isinstance(params, set):
            raise TypeError("optimizer parameters need an ordered collection: a set changes its order between runs")
        new_group["params"] = [params] if isinstance(params, torch.Tensor) else list(params)
        self._amp_stash.take_group(new_group)
        add_param_group(new_group)

    optimizer.add_param_group = MethodType(amp_add_param_group, optimizer)
