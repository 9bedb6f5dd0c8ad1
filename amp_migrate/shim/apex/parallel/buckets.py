"""Which gradients travel together: learnt from one backward, agreed with rank 0, then filled by the following ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Buckets:
    """Groups of parameters of one dtype, in the order in which their gradients became ready.

    A bucket closes when it holds `message_size` elements or, with `triggers` (ids of parameters), when one of those
    joins it. Before `agree` has been called the order is observed; afterwards gradients are collected.
    """

    def __init__(self, params: Sequence[Tensor], message_size: int, triggers: set[int] | None) -> None:
        self.params = params
        self.message_size = message_size
        self.triggers = triggers
        self.complete = False
        self.members: list[list[int]] = []
        self.in_flight: list[tuple[int, list[Tensor], Tensor, Tensor, Any]] = []
        self._index = {id(p): i for i, p in enumerate(params)}
        self._open: dict[torch.dtype, list[int]] = {}
        self._place: dict[int, tuple[int, int]] = {}
        self._slots: list[list[Tensor | None]] = []
        self._next = 0

    def observe(self, param: Tensor) -> None:
        """Note that this parameter's gradient is ready."""
        bucket = self._open.setdefault(param.dtype, [])
        bucket.append(self._index[id(param)])
        if self.triggers is not None:
            closes = id(param) in self.triggers
        else:
            closes = sum(self.params[i].numel() for i in bucket) >= self.message_size
        if closes:
            self.members.append(self._open.pop(param.dtype))

    def agree(self) -> None:
        """Take over the buckets of rank 0: every process has to send the same ones in the same order."""
        self.members += [bucket for bucket in self._open.values() if bucket]
        self._open = {}
        described = [len(self.members), *map(len, self.members), *(i for bucket in self.members for i in bucket)]
        # Ranks may have seen different parameters: the length is rank 0's.
        device = self.params[0].device
        length = torch.tensor([len(described)], device=device)
        dist.broadcast(length, 0)
        info = torch.zeros(int(length), dtype=torch.long, device=device)
        if dist.get_rank() == 0:
            info.copy_(torch.tensor(described))
        dist.broadcast(info, 0)
        count, *rest = info.tolist()
        sizes, flat = rest[:count], iter(rest[count:])
        self.members = [[next(flat) for _ in range(size)] for size in sizes]
        self._place = {i: (b, slot) for b, bucket in enumerate(self.members) for slot, i in enumerate(bucket)}
        self.complete = True
        self.start()

    def start(self) -> None:
        """Empty the buckets for the next backward."""
        self._slots = [[None] * len(bucket) for bucket in self.members]
        self._next = 0
        self.in_flight = []

    def ready(self, param: Tensor) -> Iterator[tuple[int, list[Tensor]]]:
        """Put the parameter's gradient in its place; yields the buckets that can be sent now, in order.

        Raises RuntimeError for a second gradient in one place, or for a parameter no bucket knows.
        """
        if self._index[id(param)] not in self._place:
            raise RuntimeError("A parameter received a gradient that had none when the buckets were built.")
        bucket, slot = self._place[self._index[id(param)]]
        if self._slots[bucket][slot] is not None:
            raise RuntimeError("The backward pass is attempting to replace an already-filled bucket slot.")
        self._slots[bucket][slot] = param.grad
        while self._next < len(self._slots):
            gradients = [gradient for gradient in self._slots[self._next] if gradient is not None]
            if len(gradients) < len(self._slots[self._next]):
                return
            index, self._next = self._next, self._next + 1
            yield index, gradients
