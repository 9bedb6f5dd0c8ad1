"""What the fused optimizers share: `zero_grad` with `set_grad_none`, and a group's tensors as lists per dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

Closure = Callable[[], Any]


class FusedOptimizer(torch.optim.Optimizer):
    """Base of the fused optimizers.

    Besides "params", a group may carry "step", the number of steps taken: Apex counts per group, not per parameter.
    """

    set_grad_none: bool

    def zero_grad(self) -> None:  # type: ignore[override]
        """Set the gradients to None, or to zero if `set_grad_none` is false. Takes no arguments, as in Apex."""
        super().zero_grad(set_to_none=self.set_grad_none)

    def _overflow_buffer(self) -> Tensor:
        return torch.zeros(1, dtype=torch.int, device=self.param_groups[0]["params"][0].device)

    def _with_gradients(self, params: Sequence[Tensor]) -> list[Tensor]:
        found = [p for p in params if p.grad is not None]
        if any(p.grad.is_sparse for p in found if p.grad is not None):
            name = type(self).__name__
            raise RuntimeError(f"{name} does not support sparse gradients, please consider SparseAdam instead")
        return found

    def _lists(
        self, params: Sequence[Tensor], dtypes: Sequence[torch.dtype], states: dict[str, torch.dtype | None]
    ) -> Iterator[tuple[torch.dtype, list[list[Tensor]]]]:
        """Per dtype, the lists [gradients, params, state, ...]; missing state is created as zeros of the given dtype
        (None: the parameter's). Raises RuntimeError for a parameter of another dtype."""
        params = self._with_gradients(params)
        for p in params:
            if p.dtype not in dtypes:
                raise RuntimeError(f"{type(self).__name__} only support fp16 and fp32.")
            if not self.state[p]:
                for name, dtype in states.items():
                    self.state[p][name] = torch.zeros_like(p.data, dtype=dtype or p.dtype)
        for dtype in dtypes:
            chosen = [p for p in params if p.dtype == dtype]
            if chosen:
                lists = [[p.grad.data for p in chosen if p.grad is not None], [p.data for p in chosen]]
                yield dtype, lists + [[self.state[p][name] for p in chosen] for name in states]

    @staticmethod
    def _next_step(group: dict[str, Any]) -> int:
        group["step"] = group.get("step", 0) + 1
        step: int = group["step"]
        return step
