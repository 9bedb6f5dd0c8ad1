"""Several FP16_Optimizers of one unit that ask for different loss scales: each says so as a call of `initialize` would. Those
of programs that never run in one process, and share what steps for them, have scalers of their own anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.units.unit import Blocked

if TYPE_CHECKING:
    from amp_migrate.reading.units.legacy import LegacyInit


def settle_scales(inits: Sequence[LegacyInit]) -> None:
    """Have scales that differ told by the argument `loss_scale`, so that one scaler that takes the place of several has a scale
    that is a choice between theirs, or each its own.

    Raises Blocked where they differ in more than which static scale it is, if any.
    """
    for together in _meeting(inits):
        _settle(together)


def _meeting(inits: Sequence[LegacyInit]) -> list[list[LegacyInit]]:
    """The calls that may run in one process."""
    found: list[list[LegacyInit]] = []
    for init in inits:
        near = in_process(init.project, [init.module])
        met = [group for group in found if any(other.module in near for other in group)]
        found = [group for group in found if group not in met]
        found.append([*(i for group in met for i in group), init])
    return found


def _settle(inits: Sequence[LegacyInit]) -> None:
    told = {(i.scale.start, i.scale.interval, i.scale.fixed, i.scale.off) for i in inits if i.wraps}
    if len(told) < 2:
        return
    moving = [i.scale for i in inits if not i.scale.is_static]
    intervals = {scale.interval for scale in moving}
    if len(intervals) > 1 or any(scale.begins or scale.limits for scale in moving):
        other = next(i for i in inits if i.scale != inits[0].scale)
        message = (
            "several FP16_Optimizers ask for different dynamic loss scales; choose the settings first, then wrap once"
        )
        raise Blocked.at(other.site, "AMP707", message)
    interval = next(iter(intervals), None)
    for init in inits:
        text = "1.0" if init.scale.off else init.scale.fixed or "None"
        init.arguments["loss_scale"] = init.module.imagine(text, init.call)
        start = text if init.scale.is_static else None
        init.scale = replace(init.scale, start=start, interval=interval, fixed=None, off=False, settled=text)
