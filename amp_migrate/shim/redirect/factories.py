"""Functions that create tensors: `device="cuda"` makes them on the CPU, `device="cpu"` marks them as host tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from amp_migrate.shim.redirect import placement
from amp_migrate.shim.redirect.patching import exists, replace, words, wrap
from amp_migrate.shim.redirect.placement import HOST, Device, mark_host, on_host, place_of, unmark

# Everything public whose schema has a `device` argument (a test compares the list with the schemas).
FACTORIES = words(
    """
arange as_tensor asarray bartlett_window blackman_window empty empty_like empty_permuted empty_quantized
empty_strided eye from_file full full_like hamming_window hann_window kaiser_window linspace logspace normal ones
ones_like rand rand_like randint randint_like randn randn_like randperm range scalar_tensor sparse_bsc_tensor
sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor tensor tril_indices
triu_indices zeros zeros_like
"""
)
MODULE_FACTORIES = (
    "torch.fft.fftfreq",
    "torch.fft.rfftfreq",
    "torch.nested.nested_tensor",
    "torch.nested.as_nested_tensor",
)
METHODS = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")
# These may hand back the memory they were given, which a copy to a real device never does.
ALIASING = ("as_tensor", "asarray")


def _redirected(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(*args: Any, **kwargs: Any) -> Any:
        if "device" not in kwargs and "pin_memory" not in kwargs:
            return original(*args, **kwargs)
        pinned = bool(kwargs.pop("pin_memory", False))
        place = place_of(kwargs.get("device"))
        if place in ("cuda", "host"):
            kwargs["device"] = HOST
        result = original(*args, **kwargs)
        if place == "host" or pinned:
            return mark_host(result, pinned)
        # For a meta tensor torch calls other factories on the way, naming the CPU.
        return unmark(result) if place == "cuda" else result

    return create


def _like(original: Callable[..., Any]) -> Callable[..., Any]:
    redirected = _redirected(original)

    def create_like(model: Any, *args: Any, **kwargs: Any) -> Any:
        result = redirected(model, *args, **kwargs)
        return mark_host(result) if kwargs.get("device") is None and on_host(model) else result

    return create_like


def _aliasing(original: Callable[..., Any]) -> Callable[..., Any]:
    def convert(data: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) > 1:  # as_tensor(data, dtype, device)
            kwargs["device"], args = args[1], args[:1]
        device = kwargs.pop("device", None)
        place = place_of(device)
        if place == "elsewhere":
            return original(data, *args, device=device, **kwargs)
        result = original(data, *args, **kwargs) if place is None else original(data, *args, device=HOST, **kwargs)
        if place == "cuda" and (not isinstance(data, torch.Tensor) or on_host(data)):
            return torch.clone(result)
        return result.cpu() if place == "host" and not on_host(result) else result

    return convert


class _GeneratorType(type(torch._C.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_GeneratorType):
    """`torch.Generator` that accepts a CUDA device: it draws as the CPU's does and reports the device asked for."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        return super().__new__(cls, "cpu" if place_of(device) in (None, "cuda") else device)  # type: ignore[call-arg]

    def __init__(self, device: Any = "cpu") -> None:
        self._device = placement.cuda(placement.current_index) if place_of(device) == "cuda" else Device(device)

    @property
    def device(self) -> Device:  # type: ignore[override]
        """The device it was made for."""
        return self._device


class _DeviceType(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and type(args[0]) is int and not kwargs:
            return placement.cuda(args[0])
        return Device(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Device)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is Device

    def __hash__(cls) -> int:
        return hash(Device)


def _without_device(original: Callable[..., Any]) -> Callable[..., Any]:
    # `with torch.device("cuda"):` and `set_default_device` would add the device below the replaced functions.
    def run(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if place_of(self.device) == "cuda":
            return func(*args, **(kwargs or {}))
        return original(self, func, types, args, kwargs)

    return run


def install() -> None:
    """Replace the factories, the generator, and `torch.device` (which refuses plain numbers where no GPU is)."""
    for name in FACTORIES:
        make = _aliasing if name in ALIASING else _like if name.endswith("_like") else _redirected
        wrap(f"torch.{name}", make)
    for name in MODULE_FACTORIES:
        if exists(name):
            wrap(name, _redirected)
    for name in METHODS:
        wrap(f"torch.Tensor.{name}", _redirected)
    replace("torch.Generator", Generator)
    replace("torch.device", _DeviceType("device", (), {"__module__": "torch", "__doc__": Device.__doc__}))
    wrap("torch.utils._device.DeviceContext.__torch_function__", _without_device)
    # Scripted code finds operators by the identity of these functions: let it find the new ones, beside what others have
    # registered (`torch.jit.is_scripting`).
    builtins: Any = torch.jit._builtins
    known = builtins._get_builtin_table()
    builtins._builtin_table = None
    builtins._builtin_table = {**known, **builtins._get_builtin_table()}
