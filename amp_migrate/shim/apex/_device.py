"""Which tensors count as lying on the accelerator.

Apex casts CUDA tensors and leaves host tensors alone. When a CUDA program runs on a CPU, tensors that the
program believes to be on `cuda:0` are CPU tensors; the redirect then says which ones through
`set_device_predicate`.
"""

from collections.abc import Callable

import torch

DevicePredicate = Callable[[torch.Tensor], bool]


def _is_cuda(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


_predicate: DevicePredicate = _is_cuda


def is_device_tensor(tensor: torch.Tensor) -> bool:
    """True if the program sees this tensor as a CUDA tensor."""
    return _predicate(tensor)


def set_device_predicate(predicate: DevicePredicate | None) -> DevicePredicate:
    """Replace the test behind `is_device_tensor` (None: back to `Tensor.is_cuda`) and return the former one."""
    global _predicate
    previous = _predicate
    _predicate = _is_cuda if predicate is None else predicate
    return previous


def type_name(tensor: torch.Tensor) -> str:
    """The type as Apex names it in messages, such as `torch.cuda.HalfTensor`."""
    legacy = {torch.float16: "Half", torch.float32: "Float", torch.float64: "Double", torch.bfloat16: "BFloat16"}
    where = "torch.cuda" if is_device_tensor(tensor) else "torch"
    return f"{where}.{legacy.get(tensor.dtype, str(tensor.dtype))}Tensor"
