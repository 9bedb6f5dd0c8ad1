"""`torch.autocast("cuda")` really works on the CPU, under CUDA's rules.

Entering a CUDA region switches CPU autocast on with the same dtype, and CUDA's rules are registered on the dispatch key
of CPU autocast. The rules therefore also hold inside `torch.autocast("cpu")`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.library import Library, fallthrough_kernel

from amp_migrate.shim.redirect import autocast_rules as rules
from amp_migrate.shim.redirect.patching import wrap

Kernel = Callable[..., Any]

_KEY = "AutocastCPU"
_below_autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_library: Any = None
_to_float32 = torch.Tensor.float
_to = torch.Tensor.to

# Like the weight cache of the dispatcher, for operators that CPU autocast does not know: casts of float32 leaves, by
# identity, together with the leaf so that its number is not given away, until the outermost region ends.
_weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

BANNED_MESSAGE = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which are safe."
)


def eligible(value: Any) -> bool:
    """Whether a rule may change the value's dtype: floating-point tensors except float64."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_map(function, item) for item in value)
    return function(value) if eligible(value) else value


def _tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += _tensors(value)
        elif eligible(value):
            found.append(value)
    return found


def _lowered(tensor: torch.Tensor) -> torch.Tensor:
    dtype = torch.get_autocast_dtype("cpu")
    if tensor.dtype == dtype:
        return tensor
    is_weight = tensor.dtype == torch.float32 and tensor.requires_grad and tensor.is_leaf
    if not (is_weight and torch.is_autocast_cache_enabled()) or tensor._is_view():
        return _to(tensor, dtype)
    if id(tensor) not in _weights:
        _weights[id(tensor)] = (tensor, _to(tensor, dtype))
    return _weights[id(tensor)][1]


def _casting(op: Kernel, cast: Callable[[Any], Any]) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_below_autocast):
            return op(*[_map(cast, a) for a in args], **{name: _map(cast, value) for name, value in kwargs.items()})

    return kernel


def _lower_precision(op: Kernel) -> Kernel:
    return _casting(op, _lowered)


def _float32(op: Kernel) -> Kernel:
    return _casting(op, _to_float32)


def _float32_unless_told(op: Kernel) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dtype") is None and not any(isinstance(a, torch.dtype) for a in args) and eligible(args[0]):
            # A dtype given by position (softmax) would otherwise be given twice.
            args = (_to_float32(args[0]), *args[1:])
        with torch._C._ExcludeDispatchKeyGuard(_below_autocast):
            return op(*args, **kwargs)

    return kernel


def _promote(op: Kernel) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtypes = {tensor.dtype for tensor in _tensors([*args, *kwargs.values()])}
        with torch._C._ExcludeDispatchKeyGuard(_below_autocast):
            if len(dtypes) < 2:
                return op(*args, **kwargs)
            widest = torch.float32 if torch.float32 in dtypes else torch.get_autocast_dtype("cpu")
            cast = lambda tensor: _to(tensor, widest)  # noqa: E731
            return op(*[_map(cast, a) for a in args], **{name: _map(cast, value) for name, value in kwargs.items()})

    return kernel


def _banned(op: Kernel) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(BANNED_MESSAGE)

    return kernel


def _register(library: Any, names: list[str], make: Callable[[Kernel], Kernel] | None) -> None:
    for name in names:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if op is not None:
            library.impl(name, fallthrough_kernel if make is None else make(op), _KEY)


def _mirrored(original: Callable[..., Any]) -> Callable[..., Any]:
    def set_state(device_type: Any, *value: Any) -> None:
        original(device_type, *value)
        if device_type == "cuda":
            original("cpu", *value)
        elif not value:  # set_autocast_enabled(flag), the old form for CUDA
            original("cpu", device_type)

    return set_state


def _mirrored_old(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def set_state(value: Any) -> None:
            original(value)
            getattr(torch, name)("cuda", value)

        return set_state

    return make


def _clearing(original: Callable[[], None]) -> Callable[[], None]:
    def clear() -> None:
        _weights.clear()
        original()

    return clear


def install() -> None:
    """Register the rules and make the setters of autocast state for CUDA set the CPU's as well."""
    global _library
    _library = Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that rules of CPU autocast are overridden, which is the purpose
        _register(_library, rules.LOWER_PRECISION, _lower_precision)
        _register(_library, rules.FLOAT32, _float32)
        _register(_library, rules.FLOAT32_UNLESS_TOLD, _float32_unless_told)
        _register(_library, rules.PROMOTE, _promote)
        _register(_library, rules.BANNED, _banned)
        _register(_library, rules.WITHOUT_RULE, None)
    wrap("torch.set_autocast_enabled", _mirrored)
    wrap("torch.set_autocast_dtype", _mirrored)
    wrap("torch.set_autocast_gpu_dtype", _mirrored_old("set_autocast_dtype"))
    wrap("torch.clear_autocast_cache", _clearing)
