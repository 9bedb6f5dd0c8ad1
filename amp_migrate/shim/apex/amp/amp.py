"""`amp.init`: install the O1 casts; and the functions that programs add to them."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import torch

from .. import deprecated_warning
from . import wrap
from ._amp_state import _amp_state
from .handle import AmpHandle, NoOpHandle
from .lists import functional_overrides, tensor_overrides, torch_overrides
from .rnn_compat import install_rnn_casts

F = TypeVar("F", bound=wrap.Function)

DEPRECATION = (
    "apex.amp is deprecated and was removed from Apex. Use PyTorch AMP: https://pytorch.org/docs/stable/amp.html"
)

# Decorated functions look the handle up at each call: they are usually defined before amp starts.
_DECORATOR_HANDLE: AmpHandle | NoOpHandle | None = None

# Dicts as ordered sets, emptied into the installed casts by `init`.
_USER_CAST_REGISTRY: dict[tuple[Any, str, torch.dtype], None] = {}
_USER_PROMOTE_REGISTRY: dict[tuple[Any, str], None] = {}


def half_function(fn: F) -> F:
    """Decorator: while casts are on, run `fn` with fp16 tensors (parameters through the weight cache)."""
    return _decorated(fn, torch.float16)


def float_function(fn: F) -> F:
    """Decorator: while casts are on, run `fn` with fp32 tensors."""
    return _decorated(fn, torch.float32)


def promote_function(fn: F) -> F:
    """Decorator: while casts are on, run `fn` in fp32 if its tensors mix fp16 and fp32."""
    return _decorated(fn, None)


def _decorated(fn: F, dtype: torch.dtype | None) -> F:
    deprecated_warning(DEPRECATION)

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        handle = _DECORATOR_HANDLE
        if handle is None or not handle.is_active():
            return fn(*args, **kwargs)
        label = fn.__name__ if handle.verbose else None
        if dtype is None:
            return wrap.promoting(fn, label)(*args, **kwargs)
        casting = wrap.casting(fn, dtype, handle, label=label)
        return casting(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


def register_half_function(module: Any, name: str) -> None:
    """Have `module.name` run in fp16 from the next `amp.initialize` or `amp.init` on; ValueError if there is none."""
    _USER_CAST_REGISTRY[_existing(module, name), name, torch.float16] = None


def register_float_function(module: Any, name: str) -> None:
    """Have `module.name` run in fp32 from the next `amp.initialize` or `amp.init` on; ValueError if there is none."""
    _USER_CAST_REGISTRY[_existing(module, name), name, torch.float32] = None


def register_promote_function(module: Any, name: str) -> None:
    """Have `module.name` run in its widest type from the next `amp.initialize` or `amp.init` on."""
    _USER_PROMOTE_REGISTRY[_existing(module, name), name] = None


def _existing(module: Any, name: str) -> Any:
    if not hasattr(module, name):
        raise ValueError(f"No function named {name} in module {module}.")
    return module


def init(
    enabled: bool = True,
    loss_scale: float | str = "dynamic",
    enable_caching: bool = True,
    verbose: bool = False,
    allow_banned: bool = False,
) -> AmpHandle | NoOpHandle:
    """Patch torch so that listed functions cast their CUDA tensors, and return the handle that owns the patches.

    enable_caching: keep the fp16 copy of each parameter until the next `scale_loss` ends.
    verbose: print every cast.
    allow_banned: cast the input of functions unsafe in fp16 to fp32 instead of raising NotImplementedError.

    This is what `amp.initialize(opt_level="O1")` calls. A second call wraps the wrappers of the first, whose
    casts `disable_casts` then no longer reaches.
    """
    global _DECORATOR_HANDLE
    if not enabled:
        _DECORATOR_HANDLE = NoOpHandle()
        return _DECORATOR_HANDLE

    handle = AmpHandle(loss_scale, enable_caching, verbose)
    _install_registered(handle, verbose)
    _install_listed(handle, verbose)
    _install_in_place(handle, verbose)
    install_rnn_casts(handle, verbose)
    for name, message in functional_overrides.BANNED_FUNCS:
        if allow_banned:
            _install_cast(handle, functional_overrides.MODULE, name, torch.float32, verbose)
        else:
            wrap.install(
                handle, functional_overrides.MODULE, name, functools.partial(wrap.refusing_half, message=message)
            )
    _DECORATOR_HANDLE = handle
    _amp_state.handle = handle
    return handle


def _install_cast(handle: AmpHandle, target: Any, name: str, dtype: torch.dtype, verbose: bool) -> None:
    make = functools.partial(
        wrap.casting,
        dtype=dtype,
        handle=handle,
        label=name if verbose else None,
    )
    wrap.install(handle, target, name, make)


def _install_promotion(handle: AmpHandle, target: Any, name: str, verbose: bool) -> None:
    wrap.install(handle, target, name, functools.partial(wrap.promoting, label=name if verbose else None))


def _install_registered(handle: AmpHandle, verbose: bool) -> None:
    for target, name, dtype in _USER_CAST_REGISTRY:
        _install_cast(handle, target, name, dtype, verbose)
    _USER_CAST_REGISTRY.clear()
    for target, name in _USER_PROMOTE_REGISTRY:
        _install_promotion(handle, target, name, verbose)
    _USER_PROMOTE_REGISTRY.clear()


def _install_listed(handle: AmpHandle, verbose: bool) -> None:
    for module in (functional_overrides, torch_overrides, tensor_overrides):
        for name in module.FP16_FUNCS:
            _install_cast(handle, module.MODULE, name, torch.float16, verbose)
        for name in module.FP32_FUNCS:
            _install_cast(handle, module.MODULE, name, torch.float32, verbose)
    for module in (torch_overrides, tensor_overrides):
        for name in module.CASTS:
            _install_promotion(handle, module.MODULE, name, verbose)
        for name in module.SEQUENCE_CASTS:
            make = functools.partial(wrap.promoting_sequence, label=name if verbose else None)
            wrap.install(handle, module.MODULE, name, make)


def _install_in_place(handle: AmpHandle, verbose: bool) -> None:
    """In-place forms cannot change their tensor's type: fp32 ones refuse fp16, the rest follow the tensor."""
    for name in (f"{name}_" for name in torch_overrides.FP32_FUNCS):
        message = f"Cannot call in-place function {name} with fp16 arguments."
        wrap.install(handle, torch_overrides.MODULE, name, functools.partial(wrap.refusing_half, message=message))
    for name in (f"{name}_" for name in tensor_overrides.FP32_FUNCS):
        make = functools.partial(wrap.refusing_half_self, name=name, label=name if verbose else None)
        wrap.install(handle, tensor_overrides.MODULE, name, make)
    for name in (f"{name}_" for name in tensor_overrides.FP16_FUNCS + tensor_overrides.CASTS):
        make = functools.partial(wrap.matching_self, label=name if verbose else None)
        wrap.install(handle, tensor_overrides.MODULE, name, make)
