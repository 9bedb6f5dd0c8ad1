"""The optimizer wrapper of Apex's first interface: `amp.init()`, then `handle.wrap_optimizer(optimizer)`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ._amp_state import master_params, maybe_print
from .scaler import LossScaler

if TYPE_CHECKING:
    from .handle import AmpHandle, NoOpHandle


class OptimWrapper:
    """One dynamic loss scaler per loss; `scale_loss` is entered once per loss, in order, before `step`."""

    def __init__(self, optimizer: torch.optim.Optimizer, amp_handle: AmpHandle | NoOpHandle, num_loss: int) -> None:
        self._optimizer = optimizer
        self._amp_handle = amp_handle
        self._num_loss = num_loss
        self._loss_idx = 0
        self._skip_next = [False] * num_loss
        self._loss_scaler = [LossScaler("dynamic") for _ in range(num_loss)]

    @contextmanager
    def scale_loss(self, loss: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield the scaled loss; on exit the gradients of this loss are unscaled and join the earlier ones.

        The last Apex passed parameters where its scaler wants gradients and could not leave this block; here
        it does what its documentation said.
        """
        if not self._amp_handle.is_active():
            yield loss
            return
        params = list(master_params(self._optimizer))
        earlier = [p.grad for p in params]
        if self._loss_idx > 0:
            for param in params:
                param.grad = None
        scaler = self._cur_loss_scaler()
        yield loss * scaler.loss_scale()

        grads = [p.grad for p in params if p.grad is not None]
        scaler.clear_overflow_state()
        scaler.unscale(grads, grads)
        self._skip_next[self._loss_idx] = scaler.update_scale()
        if self._loss_idx > 0:
            for param, grad in zip(params, earlier, strict=True):
                if grad is not None:
                    param.grad = grad if param.grad is None else param.grad + grad
        self._loss_idx += 1

    def _cur_loss_scaler(self) -> LossScaler:
        if self._loss_idx >= self._num_loss:
            raise AssertionError(f"scale_loss was entered more than num_loss={self._num_loss} times before step()")
        return self._loss_scaler[self._loss_idx]

    def step(self, closure: Any = None) -> Any:
        """Step, unless one of the losses overflowed. Raises NotImplementedError for a closure."""
        if not self._amp_handle.is_active():
            return self._optimizer.step(closure=closure)
        self._loss_idx = 0
        for param in master_params(self._optimizer):
            self._amp_handle.remove_cache(param)  # type: ignore[union-attr]  # an active handle is an AmpHandle
        if closure is not None:
            raise NotImplementedError("The amp optimizer wrapper does not support a closure.")
        if any(self._skip_next):
            maybe_print("Gradient overflow: skipping this update")
            self._skip_next = [False] * self._num_loss
            return None
        return self._optimizer.step()

    def __getattr__(self, name: str) -> Any:
        if name == "_optimizer":  # asked for before __init__ has run, as copying does
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __repr__(self) -> str:
        return repr(self._optimizer)
