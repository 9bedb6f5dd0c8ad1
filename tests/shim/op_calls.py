"""One small call per operation of data/op_dtypes.json, for a given dtype of its input.

The data holds, per operation and input dtype, the dtype of the result under Apex O1, CUDA autocast and CPU
autocast; null is unknown and "error" means that the call raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

DTYPES = {"float32": torch.float32, "float16": torch.float16}
_OTHER = {torch.float32: torch.float16, torch.float16: torch.float32}

TABLE: dict[str, dict[str, dict[str, str | None]]] = json.loads(
    (Path(__file__).parent / "data" / "op_dtypes.json").read_text()
)


def rows(column: str) -> list[tuple[str, str, str]]:
    """(operation, input dtype, result) for every known cell of one column."""
    return [
        (op, given, cell[column])
        for op, by_input in TABLE.items()
        for given, cell in by_input.items()
        if cell[column] is not None
    ]


def result_dtype(op: str, given: str, device: str = "cpu") -> str:
    """The dtype that the operation returns, by name."""
    with torch.device(device):
        out = CALLS[op](DTYPES[given])
    while not isinstance(out, torch.Tensor):
        out = out[0]
    return str(out.dtype).removeprefix("torch.")


def _t(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.rand(*(shape or (4, 4))).mul(0.8).add(0.1).to(dtype)


def _unary(name: str, *args: Any, **kwargs: Any) -> Callable[[torch.dtype], Any]:
    return lambda d: getattr(torch, name)(_t(d), *args, **kwargs)


def _functional(name: str, *args: Any, shape: tuple[int, ...] = (4, 4), **kwargs: Any) -> Callable[[torch.dtype], Any]:
    return lambda d: getattr(F, name)(_t(d, *shape), *args, **kwargs)


def _torch(name: str, *shapes: tuple[int, ...]) -> Callable[[torch.dtype], Any]:
    return lambda d: getattr(torch, name)(*(_t(d, *shape) for shape in shapes))


def _loss(name: str, *more: Callable[[torch.dtype], torch.Tensor], **kwargs: Any) -> Callable[[torch.dtype], Any]:
    return lambda d: getattr(F, name)(_t(d), *(make(d) for make in more), **kwargs)


def _conv(dims: int, transposed: bool) -> Callable[[torch.dtype], Any]:
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    return lambda d: getattr(F, name)(_t(d, 1, 2, *[5] * dims), _t(d, 2, 2, *[3] * dims))


def _mixed(fn: Callable[[torch.Tensor, torch.Tensor], Any]) -> Callable[[torch.dtype], Any]:
    return lambda d: fn(_t(d, 4), _t(_OTHER[d], 4))


def _index_put(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[torch.tensor([0, 1, 2, 3])] = y
    return x


def _cell(make: Callable[[int, int], nn.Module]) -> Callable[[torch.dtype], Any]:
    return lambda d: make(4, 4)(_t(d))


def _recurrent(make: Callable[[int, int], nn.Module]) -> Callable[[torch.dtype], Any]:
    return lambda d: make(4, 4)(_t(d, 3, 2, 4))


def _attention(d: torch.dtype) -> Any:
    x = _t(d, 3, 2, 4)
    return nn.MultiheadAttention(4, 2)(x, x, x)


def _same(d: torch.dtype) -> torch.Tensor:
    return _t(d)


def _column(d: torch.dtype) -> torch.Tensor:
    return _t(d, 4)


def _classes(d: torch.dtype) -> torch.Tensor:
    return torch.tensor([0, 1, 2, 3])


def _signs(d: torch.dtype) -> torch.Tensor:
    return torch.tensor([1.0, -1.0, 1.0, -1.0]).to(d)


# Functions are looked up when called, not here: they may have been replaced by then.
CALLS: dict[str, Callable[[torch.dtype], Any]] = {
    **{
        f"torch.{name}": _unary(name)
        for name in [
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
            "sqrt",
            "sigmoid",
            "tanh",
            "relu",
            "abs",
            "sum",
            "prod",
            "norm",
            "std",
            "var",
            "mean",
        ]
    },
    **{f"torch.{name}": _unary(name, 0) for name in ("cumsum", "cumprod", "softmax", "log_softmax")},
    "torch.pow": _unary("pow", 2),
    "torch.renorm": _unary("renorm", 2, 0, 1.0),
    "torch.clamp": _unary("clamp", 0.2, 0.5),
    **{f"torch.{name}": _torch(name, (4, 4), (4, 4)) for name in ("dist", "cdist", "mm", "matmul")},
    "torch.mv": _torch("mv", (4, 4), (4,)),
    "torch.dot": _torch("dot", (4,), (4,)),
    "torch.bmm": _torch("bmm", (2, 4, 4), (2, 4, 4)),
    "torch.addmm": _torch("addmm", (4, 4), (4, 4), (4, 4)),
    "torch.addmv": _torch("addmv", (4,), (4, 4), (4,)),
    "torch.addr": _torch("addr", (4, 4), (4,), (4,)),
    "torch.baddbmm": _torch("baddbmm", (2, 4, 4), (2, 4, 4), (2, 4, 4)),
    "torch.addbmm": _torch("addbmm", (4, 4), (2, 4, 4), (2, 4, 4)),
    "torch.einsum": lambda d: torch.einsum("ij,jk->ik", _t(d), _t(d)),
    "torch.prelu": _torch("prelu", (4, 4), (1,)),
    "torch.cross": lambda d: torch.cross(_t(d, 2, 3), _t(d, 2, 3), dim=1),
    "F.linear": lambda d: F.linear(_t(d), _t(d)),
    **{f"F.conv{n}d": _conv(n, transposed=False) for n in (1, 2, 3)},
    **{f"F.conv_transpose{n}d": _conv(n, transposed=True) for n in (1, 2, 3)},
    "F.interpolate": _functional("interpolate", shape=(1, 2, 4, 4), scale_factor=2),
    "F.grid_sample": lambda d: F.grid_sample(_t(d, 1, 2, 4, 4), _t(d, 1, 4, 4, 2), align_corners=False),
    **{
        f"F.{name}": _functional(name)
        for name in ["softplus", "gelu", "silu", "mish", "elu", "leaky_relu", "hardswish", "dropout", "normalize"]
    },
    **{f"F.{name}": _functional(name, dim=1) for name in ("softmin", "softmax", "log_softmax")},
    "F.layer_norm": _functional("layer_norm", (4,)),
    "F.group_norm": _functional("group_norm", 2, shape=(2, 4, 3)),
    "F.batch_norm": _functional("batch_norm", None, None, training=True),
    "F.instance_norm": _functional("instance_norm", shape=(2, 4, 3)),
    "F.local_response_norm": _functional("local_response_norm", 2, shape=(1, 4, 4)),
    "F.cosine_similarity": _loss("cosine_similarity", _same),
    **{
        f"F.{name}": _loss(name, _same)
        for name in [
            "mse_loss",
            "l1_loss",
            "smooth_l1_loss",
            "huber_loss",
            "poisson_nll_loss",
            "binary_cross_entropy_with_logits",
            "binary_cross_entropy",
            "soft_margin_loss",
            "hinge_embedding_loss",
            "multilabel_soft_margin_loss",
        ]
    },
    "F.kl_div": _loss("kl_div", _same, reduction="batchmean"),
    **{f"F.{name}": _loss(name, _classes) for name in ("cross_entropy", "nll_loss", "multi_margin_loss")},
    "F.triplet_margin_loss": _loss("triplet_margin_loss", _same, _same),
    "F.cosine_embedding_loss": _loss("cosine_embedding_loss", _same, _signs),
    "F.margin_ranking_loss": lambda d: F.margin_ranking_loss(_column(d), _column(d), _signs(d)),
    "F.sdpa": lambda d: F.scaled_dot_product_attention(_t(d, 1, 4, 4), _t(d, 1, 4, 4), _t(d, 1, 4, 4)),
    "F.embedding": lambda d: F.embedding(torch.tensor([0, 1]), _t(d)),
    "F.avg_pool2d": _functional("avg_pool2d", 2, shape=(1, 2, 4, 4)),
    "F.avg_pool3d": _functional("avg_pool3d", 2, shape=(1, 2, 4, 4, 4)),
    "F.adaptive_avg_pool2d": _functional("adaptive_avg_pool2d", 2, shape=(1, 2, 4, 4)),
    "mixed:add": _mixed(lambda x, y: x + y),
    "mixed:mul": _mixed(lambda x, y: x * y),
    "mixed:div": _mixed(lambda x, y: x / y),
    "mixed:atan2": _mixed(lambda x, y: torch.atan2(x, y)),
    "mixed:eq": _mixed(lambda x, y: x == y),
    "mixed:dot": _mixed(lambda x, y: torch.dot(x, y)),
    "mixed:addcmul": _mixed(lambda x, y: torch.addcmul(x, y, y)),
    "mixed:cat": _mixed(lambda x, y: torch.cat([x, y])),
    "mixed:stack": _mixed(lambda x, y: torch.stack([x, y])),
    "mixed:iadd_half": lambda d: _t(torch.float16).add_(_t(d)),
    "mixed:index_put": _mixed(_index_put),
    "nn.RNN": _recurrent(nn.RNN),
    "nn.LSTM": _recurrent(nn.LSTM),
    "nn.GRU": _recurrent(nn.GRU),
    "nn.LSTMCell": _cell(nn.LSTMCell),
    "nn.GRUCell": _cell(nn.GRUCell),
    "nn.MultiheadAttention": _attention,
}
