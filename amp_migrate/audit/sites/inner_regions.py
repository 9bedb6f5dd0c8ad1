"""Regions that a network, or a method of it, opens itself around what it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amp_migrate.audit.sites.forwards import Forward

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed


def opens_regions(both: Mixed, forward: Forward) -> bool:
    """Whether all networks that a call runs stand in regions of what it runs: each of these is compared where it stands."""
    place = both.now(forward.module, forward.call)
    now = both.after.forwards.at(*place) if place is not None else None
    return now is not None and _all_within(both, now)


def _all_within(both: Mixed, now: Forward, depth: int = 3) -> bool:
    runs, owner = both.after.forwards.runs(now), both.after.program.is_self(now.scope, now.model)
    if not runs and owner is not None:  # `self.forward(x)`
        runs = both.after.program.methods(owner, now.runs)
    for run in runs:
        own = (f for f in both.after.forwards.of(run.module) if run.module.function_around(f.call) is run)
        inner = [f for f in own if not both.after.forwards.no_network(f)]
        for one in inner:
            region = both.after.regions.nearest(one.module, one.call)
            if (region is None or region.off) and not (depth and _all_within(both, one, depth - 1)):
                return False
        if not inner:
            return False
    return bool(runs)
