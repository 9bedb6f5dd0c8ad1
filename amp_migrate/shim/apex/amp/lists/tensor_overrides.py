"""O1 casts for methods of `torch.Tensor`: its operators, and every listed torch function that is also a method."""

import torch

from . import torch_overrides

MODULE = torch.Tensor


def _methods(operators: list[str], functions: list[str]) -> list[str]:
    return [name for name in operators + functions if hasattr(MODULE, name)]


FP16_FUNCS = _methods(["__matmul__"], torch_overrides.FP16_FUNCS)

# `cpu` is here so that what leaves the device for numpy or a metric is fp32.
FP32_FUNCS = _methods(["__ipow__", "__pow__", "__rpow__", "cpu"], torch_overrides.FP32_FUNCS)

CASTS = _methods(
    [
        "__add__",
        "__div__",
        "__eq__",
        "__ge__",
        "__gt__",
        "__iadd__",
        "__idiv__",
        "__imul__",
        "__isub__",
        "__itruediv__",
        "__le__",
        "__lt__",
        "__mul__",
        "__ne__",
        "__radd__",
        "__rdiv__",
        "__rmul__",
        "__rsub__",
        "__rtruediv__",
        "__sub__",
        "__truediv__",
    ],
    torch_overrides.CASTS,
)

SEQUENCE_CASTS = _methods([], torch_overrides.SEQUENCE_CASTS)
