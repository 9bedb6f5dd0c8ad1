"""Casting arguments of patched functions, and the cache of fp16 copies of fp32 weights."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

import torch

from .._device import is_device_tensor

WeightCache = MutableMapping[torch.Tensor, torch.Tensor]

_SHORT_NAMES = {torch.float16: "Half", torch.float32: "Float", torch.float64: "Double", torch.bfloat16: "BFloat16"}


def dtype_name(dtype: torch.dtype) -> str:
    return _SHORT_NAMES.get(dtype, str(dtype))


def is_nested(value: object) -> bool:
    return isinstance(value, (tuple, list))


def is_float_argument(value: Any) -> bool:
    """A floating tensor, or a tuple or list of nothing else: only whole arguments are cast."""
    if isinstance(value, torch.Tensor):
        return value.is_floating_point()
    return is_nested(value) and all(is_float_argument(item) for item in value)


def _rebuild(like: Any, items: list[Any]) -> Any:
    if hasattr(like, "_fields"):
        return type(like)(*items)
    return type(like)(items)


def cast(value: Any, dtype: torch.dtype, label: str | None = None) -> Any:
    """Device tensors in `dtype`, host tensors as they are; `label` prints each cast made (verbose mode)."""
    if not isinstance(value, torch.Tensor):
        return _rebuild(value, [cast(item, dtype, label) for item in value])
    if value.dtype == dtype or not is_device_tensor(value):
        return value
    if label is not None:
        print(f"{dtype_name(value.dtype)}->{dtype_name(dtype)} ({label})")
    return value.to(dtype)


def cast_arguments(
    args: Iterable[Any], kwargs: dict[str, Any], dtype: torch.dtype, label: str | None = None
) -> tuple[list[Any], dict[str, Any]]:
    new_args = [cast(value, dtype, label) if is_float_argument(value) else value for value in args]
    new_kwargs = {
        name: cast(value, dtype, label) if is_float_argument(value) else value for name, value in kwargs.items()
    }
    return new_args, new_kwargs


def float_dtypes(args: Iterable[Any], kwargs: dict[str, Any]) -> set[torch.dtype]:
    """The floating dtypes among the arguments, host tensors included."""
    found: set[torch.dtype] = set()
    _collect(args, found)
    if kwargs:
        _collect(kwargs.values(), found)
    return found


def _collect(values: Iterable[Any], found: set[torch.dtype]) -> None:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_floating_point():
                found.add(value.dtype)
        elif is_nested(value) and is_float_argument(value):
            _collect(value, found)


def half_arguments(
    args: Iterable[Any], kwargs: dict[str, Any], cache: WeightCache, label: str | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """As `cast_arguments` to fp16, with fp32 parameters through the cache."""
    new_args = [_half_argument(value, cache, label) for value in args]
    new_kwargs = {name: _half_argument(value, cache, label) for name, value in kwargs.items()} if kwargs else kwargs
    return new_args, new_kwargs


def _half_argument(value: Any, cache: WeightCache, label: str | None) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.float16 or not value.is_floating_point():
            return value
        if value.dtype == torch.float32 and isinstance(value, torch.nn.Parameter):
            return _cached_half(value, cache, label)
        return cast(value, torch.float16, label)
    if is_nested(value) and is_float_argument(value):
        return _rebuild(value, [_half_argument(item, cache, label) for item in value])
    return value


def _cached_half(weight: torch.nn.Parameter, cache: WeightCache, label: str | None) -> torch.Tensor:
    """The fp16 copy of an fp32 weight, made once between two clearings of the cache.

    The cache is keyed by the parameter, not by its contents: a weight changed in place before the next
    clearing (the end of `scale_loss`) is still served in its old value, as Apex served it.
    A copy made without gradient is replaced when a gradient is wanted.
    """
    copy = cache.get(weight)
    if copy is not None and (copy.requires_grad == weight.requires_grad or not torch.is_grad_enabled()):
        return copy
    fresh: torch.Tensor = cast(weight, torch.float16, label)
    if fresh is not weight:  # a host parameter stays as it is
        cache[weight] = fresh
    return fresh
