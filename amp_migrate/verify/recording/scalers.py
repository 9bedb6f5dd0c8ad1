"""One view on the loss scalers of both worlds: GradScaler's and Apex's.

Native: https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling
Apex: https://nvidia.github.io/apex/amp.html#apex.amp.scale_loss
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class ScalerView(Protocol):
    """What the record says about a loss scaler."""

    def scale(self) -> float | Tensor:
        """The current scale."""

    def tracker(self) -> int | Tensor:
        """Clean passes since the last change of the scale."""

    def config(self) -> dict[str, Any]:
        """What decides how the scale will move."""

    def put(self, scale: float, tracker: int) -> None:
        """Go on from here."""

    def grow_after(self, interval: int) -> None:
        """The scale doubles after so many clean passes."""


class NativeScaler:
    """A `torch.amp.GradScaler`; reads it without waiting for the device."""

    def __init__(self, scaler: Any) -> None:
        self.scaler = scaler

    def scale(self) -> float | Tensor:
        if not self.scaler.is_enabled():
            return 1.0
        held: Tensor | None = self.scaler._get_scale_async()
        return float(self.scaler.get_scale()) if held is None else held.clone()

    def tracker(self) -> int | Tensor:
        held: Tensor | None = getattr(self.scaler, "_growth_tracker", None)
        return int(self.scaler._get_growth_tracker()) if held is None else held.clone()

    def config(self) -> dict[str, Any]:
        scaler = self.scaler
        if not scaler.is_enabled():
            return {"enabled": False, "dynamic": False, "growth_interval": 0, "min_scale": None, "max_scale": None}
        held = scaler.get_growth_factor() == 1.0 and scaler.get_backoff_factor() == 1.0
        return {
            "enabled": True,
            "dynamic": not held,
            "growth_factor": scaler.get_growth_factor(),
            "backoff_factor": scaler.get_backoff_factor(),
            "growth_interval": scaler.get_growth_interval(),
            "min_scale": None,
            "max_scale": None,
        }

    def put(self, scale: float, tracker: int) -> None:
        if not self.scaler.is_enabled():
            return
        state = self.scaler.state_dict()
        self.scaler.load_state_dict({**state, "scale": scale, "_growth_tracker": tracker})

    def grow_after(self, interval: int) -> None:
        if self.scaler.is_enabled():
            self.scaler.set_growth_interval(interval)


class ApexScaler:
    """An entry of `_amp_state.loss_scalers`, or the scaler an `FP16_Optimizer` holds (loading replaces that object)."""

    def __init__(self, scaler: Any = None, *, held_by: Any = None) -> None:
        self._scaler, self._holder = scaler, held_by

    @property
    def scaler(self) -> Any:
        """Apex's own object."""
        return self._scaler if self._holder is None else self._holder.loss_scaler

    def scale(self) -> float | Tensor:
        scale = self.scaler.loss_scale()
        return scale.clone() if isinstance(scale, Tensor) else float(scale)

    def tracker(self) -> int | Tensor:
        return int(getattr(self.scaler, "_unskipped", 0))

    def config(self) -> dict[str, Any]:
        scaler = self.scaler
        return {
            "enabled": True,
            "dynamic": bool(scaler.dynamic),
            "growth_factor": 2.0,
            "backoff_factor": 0.5,
            "growth_interval": int(scaler._scale_seq_len),
            "min_scale": scaler._min_loss_scale,
            "max_scale": scaler._max_loss_scale,
        }

    def put(self, scale: float, tracker: int) -> None:
        self.scaler._loss_scale = scale
        self.scaler._unskipped = tracker

    def grow_after(self, interval: int) -> None:
        self.scaler._scale_seq_len = interval
