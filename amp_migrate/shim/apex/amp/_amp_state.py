"""The process-wide state of amp. Programs read and write it, so its attribute names are part of the interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .frontend import Properties
    from .handle import AmpHandle
    from .scaler import LossScaler


class AmpState:
    """Attributes below the blank line exist only once `amp.initialize` (or `amp.init`) has set them."""

    hard_override: bool
    allow_incoming_model_not_fp32: bool
    verbosity: int

    opt_properties: Properties
    loss_scalers: list[LossScaler]
    min_loss_scale: float | None
    max_loss_scale: float
    handle: AmpHandle

    def __init__(self) -> None:
        self.hard_override = False
        self.allow_incoming_model_not_fp32 = False
        self.verbosity = 1


_amp_state = AmpState()


def warn_or_err(msg: str) -> None:
    """Raise RuntimeError, or only print when `_amp_state.hard_override` is set."""
    if not _amp_state.hard_override:
        raise RuntimeError(msg)
    print("Warning:  " + msg)


def maybe_print(msg: str, rank0: bool = False) -> None:
    """Print unless `verbosity=0`; with `rank0`, only in the first process of a distributed run."""
    if _amp_state.verbosity <= 0:
        return
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if not (rank0 and distributed and torch.distributed.get_rank() != 0):
        print(msg)


def master_params(optimizer: Any) -> Iterator[torch.Tensor]:
    """Yield the parameters in the optimizer's groups.

    Under O2 these are the fp32 masters, once they exist: they are made at the first `scale_loss` or
    `zero_grad`, and until then the fp16 model parameters come out
    (https://nvidia.github.io/apex/advanced.html#gradient-clipping).
    """
    for group in optimizer.param_groups:
        yield from group["params"]
