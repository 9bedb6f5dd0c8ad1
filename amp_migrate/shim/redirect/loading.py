"""Data and checkpoints on their way in: `torch.load`, storages, shared memory of data loaders, packed sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.serialization import register_package

from amp_migrate.shim.redirect.patching import replace, wrap
from amp_migrate.shim.redirect.placement import mark_host, place_of


def _staying(map_location: Any) -> Any:
    """`map_location` with what it keeps on the host marked as host memory."""
    if map_location is None or isinstance(map_location, dict):
        return map_location
    if callable(map_location):

        def locate(storage: Any, location: str) -> Any:
            result = map_location(storage, location)
            return mark_host(result) if result is storage else result

        return locate
    if place_of(map_location) == "host":
        return lambda storage, location: mark_host(storage)
    return map_location


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(f, _staying(map_location), *args, **kwargs)

    return load


def _stay(storage: Any, location: str) -> Any:
    return storage if location.startswith("cuda") else None


def _storage_cuda(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.clone()


def _new_shared(original: Callable[..., Any]) -> Callable[..., Any]:
    def new_shared(cls: Any, size: int, *, device: Any = "cpu") -> Any:
        return original.__func__(cls, size, device="cpu" if place_of(device) == "cuda" else device)  # type: ignore[attr-defined]

    return new_shared


def _host_batch_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    # A packed sequence keeps them on the host whatever the device of its data, and insists on it.
    def arguments(data: Any, batch_sizes: Any = None, *args: Any, **kwargs: Any) -> Any:
        return original(data, None if batch_sizes is None else mark_host(batch_sizes), *args, **kwargs)

    return arguments


def install() -> None:
    """Replace what turns bytes into tensors on a device."""
    # Comes before torch's own handler of "cuda" locations, which needs a device.
    register_package(0, lambda storage: None, _stay)
    wrap("torch.load", _load)
    wrap("torch.UntypedStorage.cuda", lambda original: _storage_cuda)
    replace("torch.UntypedStorage._new_shared", classmethod(_new_shared(torch.UntypedStorage._new_shared)))
    wrap("torch.nn.utils.rnn._packed_sequence_init_args", _host_batch_sizes)
