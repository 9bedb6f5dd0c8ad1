"""`apex.multi_tensor_apply`: calls an operation on lists of tensors."""

from __future__ import annotations

from .multi_tensor_apply import MultiTensorApply

__all__ = ["MultiTensorApply", "multi_tensor_applier"]

multi_tensor_applier = MultiTensorApply(2048 * 32)
