"""`torch.cuda.FloatTensor` and its siblings: constructors, `isinstance` targets, arguments of `.type()`."""

from __future__ import annotations

from typing import Any

import torch

from amp_migrate.shim.redirect import placement
from amp_migrate.shim.redirect.patching import replace, wrap

DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class CudaTensorType(type):
    """Metaclass of the tensor types: calling one makes a tensor, `isinstance` asks for dtype and place."""

    dtype: torch.dtype
    is_cuda = True
    is_sparse = False

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device", None)
        return getattr(torch, cls.__name__)(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.dtype == cls.dtype and instance.is_cuda


def type_name(dtype: torch.dtype, on_cuda: bool) -> str:
    """The legacy name `Tensor.type()` returns."""
    name = _NAMES.get(dtype, str(dtype).removeprefix("torch.").title() + "Tensor")
    return f"torch.cuda.{name}" if on_cuda else f"torch.{name}"


def described(tensor_type: Any) -> tuple[placement.Place, torch.dtype]:
    """Place and dtype of a legacy type given as a string or as an object. Raises ValueError for an unknown one."""
    if isinstance(tensor_type, str):
        module, _, name = tensor_type.rpartition(".")
        if module not in ("torch", "torch.cuda") or (name not in DTYPES and name != "Tensor"):
            raise ValueError(f"invalid type: '{tensor_type}'")
        dtype = DTYPES.get(name, torch.get_default_dtype())
        return ("cuda" if module == "torch.cuda" else "host"), dtype
    return ("cuda" if tensor_type.is_cuda else "host"), tensor_type.dtype


def _set_default_tensor_type(original: Any) -> Any:
    def set_default_tensor_type(t: Any) -> None:
        place, dtype = described(t)
        if place == "cuda":
            torch.set_default_dtype(dtype)
        else:
            original(t)

    return set_default_tensor_type


def install() -> None:
    """Replace the types in `torch.cuda` and the setter of the default type."""
    for name, dtype in DTYPES.items():
        replace(f"torch.cuda.{name}", CudaTensorType(name, (), {"__module__": "torch.cuda", "dtype": dtype}))
    wrap("torch.set_default_tensor_type", _set_default_tensor_type)
