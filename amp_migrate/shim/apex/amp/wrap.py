"""Replacing functions by wrappers that cast their arguments, and putting the originals back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ._amp_state import _amp_state
from .utils import cast_arguments, dtype_name, float_dtypes, half_arguments

if TYPE_CHECKING:
    from .handle import AmpHandle, NoOpHandle

Function = Callable[..., Any]

_HALF_AND_FLOAT = {torch.float16, torch.float32}


def install(handle: AmpHandle, target: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in place of `target.name`, if there is such a function; `handle` can undo it."""
    original = getattr(target, name, None)
    if original is None:
        return
    handle.save_function(target, name)
    setattr(target, name, make(original))


def casting(
    fn: Function,
    dtype: torch.dtype,
    handle: AmpHandle | NoOpHandle,
    label: str | None = None,
) -> Function:
    """Run `fn` with every floating argument in `dtype`; fp16 copies of parameters come from the cache."""
    cached = dtype == torch.float16 and handle.has_cache

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not handle.is_active():
            return fn(*args, **kwargs)
        if cached:
            new_args, new_kwargs = half_arguments(args, kwargs, handle.cache, label)
        else:
            new_args, new_kwargs = cast_arguments(args, kwargs, dtype, label)
        return fn(*new_args, **new_kwargs)

    return wrapper


def promoting(fn: Function, label: str | None = None) -> Function:
    """Run `fn` in fp32 when its arguments mix fp16 and fp32; any other mixture raises NotImplementedError."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not _amp_state.handle.is_active():
            return fn(*args, **kwargs)
        dtypes = float_dtypes(args, kwargs)
        if len(dtypes) <= 1:
            return fn(*args, **kwargs)
        if dtypes != _HALF_AND_FLOAT:
            names = ", ".join(sorted(dtype_name(dtype) for dtype in dtypes))
            raise NotImplementedError(f"Do not know how to promote arguments of these types: {names}")
        new_args, new_kwargs = cast_arguments(args, kwargs, torch.float32, label)
        return fn(*new_args, **new_kwargs)

    return wrapper


def promoting_sequence(fn: Function, label: str | None = None) -> Function:
    """As `promoting` for the tensors of a sequence argument; other mixtures are left to `fn`."""

    @functools.wraps(fn)
    def wrapper(seq: Any, *args: Any, **kwargs: Any) -> Any:
        if _amp_state.handle.is_active() and {item.dtype for item in seq} == _HALF_AND_FLOAT:
            seq, _ = cast_arguments(seq, {}, torch.float32, label)
        return fn(seq, *args, **kwargs)

    return wrapper


def matching_self(fn: Function, label: str | None = None) -> Function:
    """In-place methods: the other arguments take the type of the tensor that is written."""

    @functools.wraps(fn)
    def wrapper(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if _amp_state.handle.is_active() and self.dtype in _HALF_AND_FLOAT:
            new_args, kwargs = cast_arguments(args, kwargs, self.dtype, label)
            return fn(self, *new_args, **kwargs)
        return fn(self, *args, **kwargs)

    return wrapper


def refusing_half(fn: Function, message: str) -> Function:
    """Raise NotImplementedError if any argument is fp16, even while casts are disabled."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if torch.float16 in float_dtypes(args, kwargs):
            raise NotImplementedError(message)
        return fn(*args, **kwargs)

    return wrapper


def refusing_half_self(fn: Function, name: str, label: str | None = None) -> Function:
    """In-place forms of fp32 methods: raise on an fp16 tensor, else cast the other arguments to fp32."""

    @functools.wraps(fn)
    def wrapper(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.dtype == torch.float16:
            raise NotImplementedError(f"Cannot call in-place method {name} on an fp16 tensor.")
        new_args, kwargs = cast_arguments(args, kwargs, torch.float32, label)
        return fn(self, *new_args, **kwargs)

    return wrapper
