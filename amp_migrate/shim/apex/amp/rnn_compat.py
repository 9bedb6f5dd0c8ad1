"""fp16 recurrent layers under O1: their kernels are reached through `torch.nn.modules.rnn._VF`."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import rnn

from .utils import cast, is_float_argument
from .wrap import Function, casting, install

if TYPE_CHECKING:
    from .handle import AmpHandle

RNN_NAMES = ["rnn_relu", "rnn_tanh", "gru", "lstm"]


class _Indirection(ModuleType):
    """Stands in for `_VF` inside torch.nn.modules.rnn only, so that patching it reaches nobody else."""

    def __init__(self, behind: Any) -> None:
        super().__init__("_VF")
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


def install_rnn_casts(handle: AmpHandle, verbose: bool) -> None:
    install(handle, rnn, "_VF", _Indirection)
    shim = vars(rnn)["_VF"]
    for name in RNN_NAMES:
        label = name if verbose else None
        install(handle, shim, name, functools.partial(_half_layer, handle=handle, label=label))
        cell = functools.partial(casting, dtype=torch.float16, handle=handle, label=label)
        install(handle, shim, f"{name}_cell", cell)
    install(handle, torch.nn.RNNBase, "check_input", functools.partial(_accept_mixed_input, handle=handle))


def _half_layer(fn: Function, handle: AmpHandle, label: str | None) -> Function:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        if not handle.is_active():
            return fn(*args)
        # The weights are the only list among the arguments, packed sequence or not.
        return fn(*(_half_weights(a, label) if isinstance(a, list) else _half(a, label) for a in args))

    return wrapper


def _half(argument: Any, label: str | None) -> Any:
    return cast(argument, torch.float16, label) if is_float_argument(argument) else argument


def _half_weights(weights: list[torch.Tensor], label: str | None) -> list[torch.Tensor]:
    """fp16 copies laid out as the originals: cuDNN wants all weights in one buffer, in its own order."""
    first = weights[0]
    storages = {w.untyped_storage().data_ptr() for w in weights}
    if len(storages) > 1 or not all(w.is_contiguous() and w.dtype == torch.float32 for w in weights):
        return [_half(w, label) for w in weights]
    start = min(w.storage_offset() for w in weights)
    length = max(w.storage_offset() + w.numel() for w in weights) - start
    buffer = first.new_empty(length, dtype=torch.float16)
    copies = []
    for weight in weights:
        # A tensor of its own over the buffer, not a view of it, so that each copy_ records its own gradient.
        copy = buffer.new_empty(0)
        copy.set_(buffer.untyped_storage(), weight.storage_offset() - start, weight.shape)  # type: ignore[call-overload]
        copies.append(copy.copy_(weight))
    return copies


def _accept_mixed_input(check: Function, handle: AmpHandle) -> Function:
    """`RNNBase.check_input` compares input and weight dtypes before the casts above have happened."""

    @functools.wraps(check)
    def wrapper(self: torch.nn.RNNBase, input: torch.Tensor, batch_sizes: torch.Tensor | None) -> None:
        if handle.is_active():
            weight = self.all_weights[0][0]
            # Only shape and dtype are looked at.
            input = weight.new_empty(()).expand(input.shape)
        check(self, input, batch_sizes)

    return wrapper
