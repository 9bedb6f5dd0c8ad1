"""`scale_loss`, `disable_casts`, and the handle that owns the installed casts and the weight cache."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ._amp_state import _amp_state, maybe_print
from ._optimizers import is_optimizer
from .opt import OptimWrapper
from .scaler import LossScaler
from .utils import WeightCache


@contextmanager
def scale_loss(
    loss: torch.Tensor,
    optimizers: Any,
    loss_id: int = 0,
    model: torch.nn.Module | None = None,
    delay_unscale: bool = False,
    delay_overflow_check: bool = False,
) -> Iterator[torch.Tensor]:
    """Yield `loss.float() * loss scale` for the backward pass; on exit, unscale the gradients.

    optimizers: an optimizer or list of optimizers returned by `amp.initialize`.
    loss_id: which of the `num_losses` scalers to use (default 0).
    model: ignored.
    delay_unscale: leave the gradients scaled; a later `scale_loss` without it must come before the step.
    delay_overflow_check: unscale, but leave scale, growth counter and the coming step alone.

    An inf or NaN under dynamic scaling halves the scale and turns the next `step` of each optimizer into a
    no-op. Raises RuntimeError before `amp.initialize`. With `enabled=False` the loss is yielded untouched.
    https://nvidia.github.io/apex/amp.html#apex.amp.scale_loss
    """
    if not hasattr(_amp_state, "opt_properties"):
        raise RuntimeError(
            "amp.scale_loss was entered, but amp has not been initialized: call "
            "`model, optimizer = amp.initialize(model, optimizer, opt_level=...)` first."
        )
    properties = _amp_state.opt_properties
    if not properties.enabled:
        yield loss
        return

    if is_optimizer(optimizers):
        optimizers = [optimizers]
    scaler = _amp_state.loss_scalers[loss_id]
    scale = scaler.loss_scale()

    if not properties.master_weights and not scaler.dynamic and scale == 1.0:
        yield loss.float()
        _clear_cast_cache()
        return

    if not delay_unscale and isinstance(optimizers, list):
        for optimizer in optimizers:
            if not optimizer._amp_stash.params_have_scaled_gradients:
                optimizer._prepare_amp_backward()

    # An exception in the body passes through here without unscaling, as it did in Apex.
    yield loss.float() * scale

    if delay_unscale:
        for optimizer in optimizers:
            optimizer._amp_stash.params_have_scaled_gradients = True
    else:
        scaler.clear_overflow_state()
        for optimizer in optimizers:
            optimizer._post_amp_backward(scaler)
            optimizer._amp_stash.params_have_scaled_gradients = False
        if not delay_overflow_check and scaler.update_scale():
            for optimizer in optimizers:
                if not optimizer._amp_stash.already_patched:
                    _skip_next_step(optimizer, scaler, loss_id)
    _clear_cast_cache()


def _clear_cast_cache() -> None:
    if _amp_state.opt_properties.patch_torch_functions:
        _amp_state.handle._clear_cache()


def _skip_next_step(optimizer: Any, scaler: LossScaler, loss_id: int) -> None:
    """Shadow `optimizer.step` for one call."""
    step = optimizer.step

    def skip_step(closure: Any = None) -> None:
        if closure is not None:
            raise RuntimeError("Amp does not support closures in optimizer.step.")
        maybe_print(f"Gradient overflow: loss scaler {loss_id} skips this step and goes to {scaler.loss_scale()}")
        optimizer._amp_stash.discard_master_grads()
        if hasattr(optimizer, "most_recent_scale"):  # FusedSGD unscales inside its step
            optimizer.most_recent_scale = 1.0
            optimizer.scale_set_by_backward = False
        optimizer.step = step
        optimizer._amp_stash.already_patched = False

    optimizer.step = skip_step
    optimizer._amp_stash.already_patched = True


@contextmanager
def disable_casts() -> Iterator[None]:
    """Run the body without O1 casts.

    Leaving switches them on, nested or not, and an exception leaves them off: both as in Apex.
    """
    _amp_state.handle._is_active = False
    yield
    _amp_state.handle._is_active = True


class AmpHandle:
    """Owner of the installed casts; returned by `amp.init` and kept as `_amp_state.handle`."""

    def __init__(self, loss_scale: float | str = "dynamic", enable_caching: bool = True, verbose: bool = False) -> None:
        self._enable_caching = enable_caching
        self._verbose = verbose
        self._cache: WeightCache = {}
        self._default_scaler: LossScaler | None = LossScaler(loss_scale)
        self._is_active = True
        self._all_wrappers: list[tuple[Any, str, Any]] = []

    def is_active(self) -> bool:
        return self._is_active

    @contextmanager
    def _disable_casts(self) -> Iterator[None]:
        self._is_active = False
        yield
        self._is_active = True

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer, num_loss: int = 1) -> OptimWrapper:
        """The old interface for several losses per optimizer: `num_loss` scalers, all dynamic."""
        self._default_scaler = None
        return OptimWrapper(optimizer, self, num_loss)

    @contextmanager
    def scale_loss(self, loss: torch.Tensor, optimizer: Any) -> Iterator[torch.Tensor]:
        """Withdrawn by Apex; entering it raises RuntimeError."""
        raise RuntimeError(
            "The old Amp API (handle.scale_loss) is no longer supported. Use amp.initialize and amp.scale_loss: "
            "https://nvidia.github.io/apex/amp.html#transition-guide-for-old-api-users"
        )
        yield loss  # makes this a generator, so that the error comes on entering, not on the call

    def _clear_cache(self) -> None:
        self._cache.clear()

    def save_function(self, target: Any, name: str) -> None:
        """Remember what `target.name` is now: its own attribute, or (for classes) an inherited one."""
        self._all_wrappers.append((target, name, vars(target).get(name)))

    def _deactivate(self) -> None:
        """Put back every replaced function, last replaced first."""
        for target, name, original in reversed(self._all_wrappers):
            if original is None:
                delattr(target, name)
            else:
                setattr(target, name, original)
        self._all_wrappers = []

    @property
    def has_cache(self) -> bool:
        return self._enable_caching

    @property
    def cache(self) -> WeightCache:
        return self._cache

    def remove_cache(self, param: torch.Tensor) -> None:
        if self.has_cache:
            self._cache.pop(param, None)

    @property
    def verbose(self) -> bool:
        return self._verbose


class NoOpHandle:
    """What `amp.init(enabled=False)` returns: the same interface, nothing behind it."""

    cache: WeightCache = types.MappingProxyType({})  # type: ignore[assignment]
    has_cache = False
    verbose = False

    def is_active(self) -> bool:
        return False

    @contextmanager
    def _disable_casts(self) -> Iterator[None]:
        yield

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer, num_loss: int = 1) -> OptimWrapper:
        return OptimWrapper(optimizer, self, num_loss)

    @contextmanager
    def scale_loss(self, loss: torch.Tensor, optimizer: Any) -> Iterator[torch.Tensor]:
        yield loss

    def _clear_cache(self) -> None:
        """Nothing is cached."""

    def _deactivate(self) -> None:
        """Nothing was replaced."""
