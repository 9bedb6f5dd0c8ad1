"""Static and dynamic loss scale: https://nvidia.github.io/apex/amp.html#opt-levels-and-properties"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch

Tensors = Sequence[torch.Tensor]


class LossScaler:
    """One loss scale, how it moves, and the unscaling of gradients.

    loss_scale: "dynamic", or a number that never changes.
    init_scale: first dynamic scale (default 65536, at most max_loss_scale).
    scale_window: clean backward passes before the scale doubles (default 2000).
    min_loss_scale, max_loss_scale: bounds of a dynamic scale (defaults none and 2**24).

    `_loss_scale`, `_unskipped`, `_scale_seq_len` and `_overflow_buf` are read and assigned by programs.
    The scale always halves and doubles; Apex accepts `scale_factor` and ignores it.
    """

    # Class-level, so that a scaler unpickled from an FP16_Optimizer checkpoint has it as well.
    _found_inf: dict[torch.device, torch.Tensor] = {}  # noqa: RUF012 - never mutated in place
    _flag: torch.Tensor | None = None

    def __init__(
        self,
        loss_scale: float | str,
        init_scale: float = 2.0**16,
        scale_factor: float = 2.0,
        scale_window: int = 2000,
        min_loss_scale: float | None = None,
        max_loss_scale: float = 2.0**24,
    ) -> None:
        self.dynamic = loss_scale == "dynamic"
        self._loss_scale: float = min(max_loss_scale, init_scale) if self.dynamic else loss_scale  # type: ignore[assignment]
        self._max_loss_scale = max_loss_scale
        self._min_loss_scale = min_loss_scale
        self._scale_seq_len = scale_window
        self._unskipped = 0
        self._has_overflow = False

    def loss_scale(self) -> float:
        return self._loss_scale

    @property
    def _overflow_buf(self) -> torch.Tensor:
        """The int tensor that says 1 after an overflow, made when first asked for.

        Programs that average gradients themselves hand it to `amp_C.multi_tensor_scale`, or put their own in its place
        and call `update_scale`.
        """
        if self._flag is None:
            device = next(iter(self._found_inf), "cuda" if torch.cuda.is_available() else "cpu")
            self._flag = torch.zeros(1, dtype=torch.int, device=device)
        for found in self._found_inf.values():
            self._flag.masked_fill_((found != 0).to(self._flag.device), 1)
        return self._flag

    @_overflow_buf.setter
    def _overflow_buf(self, flag: torch.Tensor) -> None:
        self._flag = flag
        self._found_inf = {}

    def unscale(
        self,
        model_grads: Iterable[torch.Tensor],
        master_grads: Iterable[torch.Tensor],
        unused_scale: float | None = None,
        models_are_masters: bool = False,
        scale_override: float | None = None,
    ) -> None:
        """Write `model_grads / scale` into `master_grads` (the same tensors, or fp32 ones) and look for inf/NaN."""
        if self._has_overflow:
            return
        scale = self._loss_scale if scale_override is None else scale_override
        if scale == 1.0 and models_are_masters and not self.dynamic:
            return
        models, masters = list(model_grads), list(master_grads)
        _copy(masters, models)
        self._multiply_and_check(masters, 1.0 / scale)

    def unscale_with_stashed(
        self,
        model_grads: Iterable[torch.Tensor],
        stashed_master_grads: Iterable[torch.Tensor],
        master_grads: Iterable[torch.Tensor],
        scale_override: tuple[float, float, float] | None = None,
    ) -> None:
        """Accumulate: write the unscaled `model_grads` plus the gradients of earlier backward passes.

        scale_override: the scales that the new gradients have, the stashed ones have, and the result shall have.
        Only the new gradients are checked for inf/NaN.
        """
        if self._has_overflow:
            return
        have, stashed_have, out = (self._loss_scale, 1.0, 1.0) if scale_override is None else scale_override
        models, stashed, masters = list(model_grads), list(stashed_master_grads), list(master_grads)
        in_place = all(model is master for model, master in zip(models, masters, strict=True))
        fresh = (
            models
            if in_place
            else [model.to(master.dtype, copy=True) for model, master in zip(models, masters, strict=True)]
        )
        self._multiply_and_check(fresh, out / have)
        torch._foreach_add_(fresh, stashed, alpha=out / stashed_have)
        _copy(masters, fresh)

    def clear_overflow_state(self) -> None:
        self._has_overflow = False
        self._found_inf = {}
        if self._flag is not None:
            self._flag.zero_()

    def update_scale(self) -> bool:
        """Count one backward pass and move the scale; True means that the step must be skipped.

        The only point where the host waits for the device.
        """
        if self.dynamic and not self._has_overflow:
            flags = [*self._found_inf.values(), *([] if self._flag is None else [self._flag])]
            self._has_overflow = any(flag.item() for flag in flags)
        skip = self._has_overflow and self.dynamic
        if skip:
            self._loss_scale /= 2.0
            if self._min_loss_scale:
                self._loss_scale = max(self._min_loss_scale, self._loss_scale)
            self._unskipped = 0
        else:
            self._unskipped += 1
        if self.dynamic and self._unskipped == self._scale_seq_len:
            self._loss_scale = min(self._max_loss_scale, self._loss_scale * 2.0)
            self._unskipped = 0
        return skip

    @torch.no_grad()
    def _multiply_and_check(self, grads: Tensors, factor: float) -> None:
        groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = defaultdict(list)
        for grad in grads:
            values = grad._values() if grad.is_sparse else grad
            groups[values.device, values.dtype].append(values)
        found_inf = dict(self._found_inf)
        for (device, _), group in groups.items():
            if device not in found_inf:
                found_inf[device] = group[0].new_zeros((), dtype=torch.float32)
            inverse = group[0].new_full((), factor, dtype=torch.float32)
            torch._amp_foreach_non_finite_check_and_unscale_(group, found_inf[device], inverse)
        self._found_inf = found_inf


@torch.no_grad()
def _copy(targets: Tensors, sources: Tensors) -> None:
    """Copy where target and source are different tensors."""
    pairs = [(target, source) for target, source in zip(targets, sources, strict=True) if target is not source]
    if pairs:
        torch._foreach_copy_([target for target, _ in pairs], [source for _, source in pairs])
