"""Tensor methods that move tensors or tell where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from amp_migrate.shim.redirect import placement
from amp_migrate.shim.redirect.patching import exists, replace, words, wrap
from amp_migrate.shim.redirect.placement import Device, Tensor, mark_host, on_host, place_of
from amp_migrate.shim.redirect.tensor_types import described, type_name

_real_to = torch.Tensor.to
_parse_to = torch._C._nn._parse_to

# Copies and conversions of a host tensor are made on the host. (Views share its storage and need no help.)
STAY_ON_HOST = words(
    """
bfloat16 bool byte char clone contiguous double float half int long short new_empty new_full new_ones new_tensor
new_zeros new_empty_strided
"""
)


def move(tensor: Tensor, place: str | None, copy: bool = False, **conversion: Any) -> Tensor:
    """`tensor.to(...)` with the device already understood; a change of place is a copy, as between real devices."""
    if placement.real_device(tensor).type != "cpu" and place is not None:
        conversion["device"] = placement.HOST  # a meta tensor, say: torch decides what comes of it
    host = on_host(tensor)
    leaves = place is not None and (place == "host") != host
    result = _real_to(tensor, copy=copy or leaves, **conversion)
    if place == "host" or (place is None and host):
        mark_host(result)
    return result


def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor.to` in its three forms: (dtype), (device, dtype), (other tensor)."""
    target = args[0] if args else kwargs.pop("other", None)
    names: tuple[str, ...]
    if isinstance(target, Tensor):
        kwargs["dtype"], device, names = target.dtype, target.device, ("non_blocking", "copy")
    elif isinstance(target, torch.dtype):
        kwargs["dtype"], device, names = target, kwargs.pop("device", None), ("non_blocking", "copy")
    elif args:
        device, names = target, ("dtype", "non_blocking", "copy")
    else:
        device, names = kwargs.pop("device", None), ()
    kwargs.update(zip(names, args[1:], strict=False))
    place = place_of(device)
    if place == "elsewhere":
        return _real_to(self, device=device, **kwargs)
    if kwargs.get("dtype", self) is None:
        del kwargs["dtype"]
    return move(self, place, **kwargs)


def _cuda(self: Tensor, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Tensor:
    if device is not None and place_of(device) != "cuda":
        raise RuntimeError(f"Invalid device, must be cuda device: {device}")
    return move(self, "cuda", non_blocking=non_blocking, **kwargs)


def _cpu(self: Tensor, **kwargs: Any) -> Tensor:
    return move(self, "host", **kwargs)


def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    if dtype is None:
        return (
            type_name(self.dtype, on_cuda=not on_host(self))
            if self.device.type in ("cpu", "cuda")
            else _real_type(self)
        )
    if isinstance(dtype, torch.dtype):
        return move(self, None, dtype=dtype, non_blocking=non_blocking)
    place, real = described(dtype)
    return move(self, place, dtype=real, non_blocking=non_blocking)


_real_type = torch.Tensor.type


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    return to(self, other)


def _pin_memory(self: Tensor, device: Any = None) -> Tensor:
    return self if placement.is_pinned(self) else mark_host(_real_to(self, copy=True), pinned=True)


def _get_device(self: Tensor) -> int:
    device = placement.device_of(self)
    return -1 if device.index is None else device.index


def _no_interface(self: Tensor) -> Any:
    raise AttributeError("a tensor on the CPU has no __cuda_array_interface__")


def _stays(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        return mark_host(result) if on_host(self) and "device" not in kwargs else result

    return method


def parse_to(*args: Any, **kwargs: Any) -> tuple[Device | None, torch.dtype | None, bool, Any]:
    """What `Module.to` parses its arguments with; understands device numbers and keeps a tensor's visible device."""
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    elif args and type(args[0]) is int:
        args = (placement.cuda(args[0]), *args[1:])
    elif type(kwargs.get("device")) is int:
        kwargs["device"] = placement.cuda(kwargs["device"])
    return _parse_to(*args, **kwargs)


def install() -> None:
    """Replace the methods and properties of `torch.Tensor`."""
    methods: dict[str, Any] = {
        "to": to,
        "cuda": _cuda,
        "cpu": _cpu,
        "type": _type,
        "type_as": _type_as,
        "pin_memory": _pin_memory,
        "is_pinned": lambda self, device=None: placement.is_pinned(self),
        "get_device": _get_device,
        "record_stream": lambda self, stream: None,
    }
    for name, method in methods.items():
        wrap(f"torch.Tensor.{name}", lambda original, method=method: method)  # type: ignore[misc]
    properties = {
        "device": placement.device_of,
        "is_cuda": lambda self: placement.device_of(self).type == "cuda",
        "is_cpu": lambda self: placement.device_of(self).type == "cpu",
        "__cuda_array_interface__": _no_interface,
    }
    for name, getter in properties.items():
        replace(f"torch.Tensor.{name}", property(getter))
    replace("torch.get_device", _get_device)
    replace("torch._C._nn._parse_to", parse_to)
    for name in STAY_ON_HOST:
        if exists(f"torch.Tensor.{name}"):
            wrap(f"torch.Tensor.{name}", _stays)
