"""Lists of tensors as one flat tensor and back; also importable as Apex's compiled module `apex_C`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """One 1-d tensor with the elements of all, which must have one dtype."""
    return torch.cat([t.reshape(-1) for t in tensors])


def unflatten(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of `flat` in the shapes of `like`."""
    parts = torch.split(flat, [t.numel() for t in like])
    return [part.view(t.shape) for part, t in zip(parts, like, strict=True)]
