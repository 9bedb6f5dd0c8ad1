"""The older APIs do not name the models: without a forward in sight, a unit is refused. No construct of its own."""

from __future__ import annotations

from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions import shared_regions


def needs_region(m: Migration) -> None:
    """Raise Blocked where nothing would run under autocast: the migrated program would compute in float32."""
    if any(m.regions.read(scope).found for scope in (*m.regions.scopes(), *shared_regions.scopes(m))):
        return
    init = m.unit.inits[0]
    raise Blocked.at(
        init.site,
        "AMP502",
        "no forward of a model is in sight, so nothing would run under autocast; rewrite this file together with the "
        "one that runs the model",
    )
