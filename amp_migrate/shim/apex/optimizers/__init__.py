"""`apex.optimizers`: the update rules of Apex's fused optimizers, on torch's multi-tensor operations.

https://nvidia.github.io/apex/optimizers.html
"""

from __future__ import annotations

from .fused_adagrad import FusedAdagrad
from .fused_adam import FusedAdam
from .fused_lamb import FusedLAMB
from .fused_mixed_precision_lamb import FusedMixedPrecisionLamb
from .fused_novograd import FusedNovoGrad
from .fused_sgd import FusedSGD

__all__ = ["FusedAdagrad", "FusedAdam", "FusedLAMB", "FusedMixedPrecisionLamb", "FusedNovoGrad", "FusedSGD"]


def __getattr__(name: str) -> object:
    if name == "FP16_Optimizer":
        raise ImportError(
            "apex.optimizers.FP16_Optimizer left Apex in 2019, together with the FusedAdam(max_grad_norm=...) it was "
            "written for: amp-migrate's stand-in is the last Apex that had amp; see apex.fp16_utils.FP16_Optimizer",
            name=__name__,
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
