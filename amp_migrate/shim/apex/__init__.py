"""A pure-PyTorch stand-in for NVIDIA Apex, importable as `apex` while a program runs through amp-migrate.

Behaviour follows the last Apex that still had `apex.amp`
(https://nvidia.github.io/apex/); it needs no compiled extension and imports only torch.
Submodules load on first use, so `import apex` costs nothing beyond torch itself.
"""

import importlib
import warnings
from types import ModuleType

import torch

__all__ = ["amp", "fp16_utils", "normalization", "optimizers", "parallel"]

# Those that are missing are asked for too: the import hook then raises what names them.
_MISSING = frozenset({"RNN", "fused_dense", "mlp", "transformer"})
_SUBMODULES = frozenset({*__all__, *_MISSING, "contrib", "multi_tensor_apply"})


class DeprecatedFeatureWarning(FutureWarning):
    """Raised as a warning by every entry point that Apex announced it would remove."""


def deprecated_warning(msg: str) -> None:
    """Warn once per call site, on rank 0 only when a process group is running."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if not distributed or torch.distributed.get_rank() == 0:
        warnings.warn(msg, DeprecatedFeatureWarning, stacklevel=3)


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
