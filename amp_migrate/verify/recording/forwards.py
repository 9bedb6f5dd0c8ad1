"""Whole forwards: which of them count, and what tells the batches they are given apart."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef


def trains_or_evaluates(module: nn.Module, args: tuple[Any, ...]) -> bool:
    """Not so the transforms of a data set, which are modules too: they have no parameters, and are given one tensor or
    none, to which no gradient flows. (A loss is given two.)"""
    if next(module.parameters(), None) is not None:
        return True
    flat = [v for value in args for v in (value if isinstance(value, (list, tuple)) else [value])]
    tensors = [value for value in flat if isinstance(value, Tensor)]
    return len(tensors) > 1 or any(tensor.requires_grad for tensor in tensors)


class Outputs:
    """What whole forwards gave lately: shown to another network, it is no batch of the data, for it moves with the weights.
    Kept are the storages, weakly: what is detached from a result shares its storage."""

    def __init__(self) -> None:
        self._kept: deque[StorageWeakRef] = deque(maxlen=64)

    def add(self, value: Any) -> None:
        self._kept.extend(storage for tensor in _tensors(value, 16) if (storage := _storage(tensor)) is not None)

    def holds(self, tensor: Tensor) -> bool:
        """Whether it was computed by a network, as the fakes are that a discriminator is shown."""
        return tensor.grad_fn is not None or _storage(tensor) in self._kept


def _storage(tensor: Tensor) -> StorageWeakRef | None:
    try:
        return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
    except (NotImplementedError, RuntimeError):
        return None  # a tensor that wraps others has none


def checksum(value: Any, computed: Outputs | None = None) -> list[Tensor]:
    """Numbers that tell tensors apart, blind to dtype: the mean magnitude of each that is not `computed` by a network."""
    found = (tensor for tensor in _tensors(value, 16) if computed is None or not computed.holds(tensor))
    return [tensor.detach().abs().mean(dtype=torch.float32) for tensor in found]


def _tensors(value: Any, most: int) -> Iterator[Tensor]:
    """The dense tensors in arguments or in a result, `most` of them."""
    stack, seen = [value], 0
    while stack and seen < 1000 and most:
        item = stack.pop()
        seen += 1
        if isinstance(item, Tensor):
            if item.numel() and item.layout is torch.strided and not item.is_complex():
                most -= 1
                yield item
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
