"""Whole forwards: which of them count, and what tells the batches they are given apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def trains_or_evaluates(module: nn.Module, args: tuple[Any, ...]) -> bool:
    """Not so the transforms of a data set, which are modules too: they have no parameters, and are given one tensor or
    none, to which no gradient flows. (A loss is given two.)"""
    if next(module.parameters(), None) is not None:
        return True
    flat = [v for value in args for v in (value if isinstance(value, (list, tuple)) else [value])]
    tensors = [value for value in flat if isinstance(value, Tensor)]
    return len(tensors) > 1 or any(tensor.requires_grad for tensor in tensors)


def checksum(value: Any) -> list[Tensor]:
    """Numbers that tell batches apart, blind to dtype: the mean magnitude of every tensor in the arguments."""
    sums: list[Tensor] = []
    stack, seen = [value], 0
    while stack and seen < 1000 and len(sums) < 16:
        item = stack.pop()
        seen += 1
        if isinstance(item, Tensor):
            if item.numel() and item.layout is torch.strided and not item.is_complex():
                sums.append(item.detach().abs().mean(dtype=torch.float32))
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
    return sums
