"""Rounding noise of fp16 size, from a generator of its own so that the program's random numbers stay as they are."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Noise:
    """Multiplies tensors by 1 + u, with u uniform in ±amplitude, element by element."""

    def __init__(self, amplitude: float, seed: int) -> None:
        self.amplitude = amplitude
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def disturb(self, tensors: Iterable[Tensor | None]) -> None:
        for tensor in tensors:
            if tensor is None or not tensor.is_floating_point():
                continue
            values = tensor.coalesce().values() if tensor.is_sparse else tensor.data
            generator = self._generators.get(values.device)
            if generator is None:
                generator = self._generators[values.device] = torch.Generator(values.device).manual_seed(self._seed)
            factor = torch.empty(values.shape, dtype=torch.float32, device=values.device)
            factor.uniform_(1 - self.amplitude, 1 + self.amplitude, generator=generator)
            values.copy_(values.float() * factor)
