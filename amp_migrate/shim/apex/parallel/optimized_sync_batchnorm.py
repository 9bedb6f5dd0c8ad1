"""Where a compiled Apex keeps its `SyncBatchNorm`."""

from __future__ import annotations

from .sync_batchnorm import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
