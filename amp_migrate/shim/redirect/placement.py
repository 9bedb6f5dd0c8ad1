"""Where a tensor is, as the program sees it: on the current CUDA device unless it was moved to the host explicitly.

The mark sits on the storage, so views of a host tensor are host tensors; results of operations are not.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import torch

Place = Literal["cuda", "host", "elsewhere"]

Device = torch.device
Tensor = torch.Tensor
real_device = torch.Tensor.device.__get__

HOST = Device("cpu")
_MARK = "_amp_migrate_host"
_PINNED = "pinned"

# One device per process: whatever is "on CUDA" is on the device that was set last.
current_index = 0


def set_current_index(index: int) -> None:
    """Make `index` the current device."""
    global current_index
    current_index = index


@functools.cache
def cuda(index: int) -> Device:
    """The device `cuda:index`."""
    return Device("cuda", index)


def place_of(device: Any) -> Place | None:
    """What a `device=` argument means: None where none was given."""
    if device is None:
        return None
    if isinstance(device, int):
        return "cuda"
    kind = device.partition(":")[0] if isinstance(device, str) else device.type
    return "cuda" if kind == "cuda" else "host" if kind == "cpu" else "elsewhere"


def on_host(tensor: Tensor) -> bool:
    """Whether the tensor was moved to the host explicitly."""
    return _mark(tensor) is not None


def is_pinned(tensor: Tensor) -> bool:
    """Whether the tensor went through `pin_memory`."""
    return _mark(tensor) == _PINNED


def mark_host(tensor: Any, pinned: bool = False) -> Any:
    """Declare the tensor (or storage) to be on the host, and return it."""
    storage = _storage(tensor) if isinstance(tensor, Tensor) else tensor
    if storage is not None:
        setattr(storage, _MARK, _PINNED if pinned else "pageable")
    return tensor


def unmark(tensor: Tensor) -> Tensor:
    """Declare the tensor to be on the device again, and return it."""
    storage = _storage(tensor)
    if storage is not None and hasattr(storage, _MARK):
        delattr(storage, _MARK)
    return tensor


def device_of(tensor: Tensor) -> Device:
    """The device a program sees."""
    real: Device = real_device(tensor)
    if real.type != "cpu":
        return real
    return HOST if on_host(tensor) else cuda(current_index)


def _mark(tensor: Tensor) -> str | None:
    storage = _storage(tensor)
    return None if storage is None else getattr(storage, _MARK, None)


def _storage(tensor: Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # sparse and functorch tensors have none
        return None
