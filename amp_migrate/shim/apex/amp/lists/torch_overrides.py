"""O1 casts for functions of the `torch` namespace."""

import torch

MODULE = torch

FP16_FUNCS = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_tbc",
    "prelu",
    # BLAS
    "addmm",
    "addmv",
    "addr",
    "matmul",
    "mm",
    "mv",
    # batched BLAS: half precision since CUDA 9.1, older than any torch this runs on
    "addbmm",
    "baddbmm",
    "bmm",
]

FP32_FUNCS = [
    # pointwise
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "pow",
    # reductions
    "cumprod",
    "cumsum",
    "dist",
    "norm",
    "prod",
    "std",
    "sum",
    "var",
    "renorm",
]

# Run in the widest type among the arguments.
CASTS = [
    "addcdiv",
    "addcmul",
    "atan2",
    "cross",
    "bilinear",
    "dot",
    "add",
    "div",
    "mul",
    "eq",
    "equal",
    "ge",
    "gt",
    "le",
    "lt",
    "ne",
]

# The same, for functions whose first argument is a sequence of tensors.
SEQUENCE_CASTS = ["cat", "stack"]
