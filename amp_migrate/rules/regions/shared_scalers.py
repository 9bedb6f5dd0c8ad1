"""Regions that ask a scaler which lives at module level (AMP227), where a program comes to them that only evaluates: its
`initialize` sets that scaler, as that of the program that trains does. It is disabled in every other process.

No codes of its own: AMP517 is told in `shared_regions.py`, AMP110 in `announced.py`.

Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.is_enabled
"""

from __future__ import annotations

from collections.abc import Collection

from amp_migrate.findings import Code
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.scaler.process_wide import LastHome, ProcessWide
from amp_migrate.reading.units.unit import Blocked, Init
from amp_migrate.reading.values.bools import as_bool
from amp_migrate.rules.handover.process_wide import reach
from amp_migrate.rules.migration import Migration

CODES: tuple[Code, ...] = ()


def set_for(m: Migration, scope: Scope, inits: Collection[Init]) -> bool:
    """Set the scaler that a region asks in the place of some `initialize` calls; whether that can be done, or was."""
    asked = m.earlier.asking.get(scope)
    if asked is None or m.scales or not inits or any(init not in m.unit.inits for init in inits):
        return False
    plan = _plan(m, *asked)
    if plan is None or not {*inits} <= {home.init for home in plan.homes}:
        return False
    new = [home for home in plan.homes if home.init in inits and home.init not in m.set_for]
    if any(home.above is not None or home.dissolved for home in new):
        return False
    for home in new:
        _set(m, plan, home)
    reach(m, [plan])
    return True


def _plan(m: Migration, module: Module, name: str) -> ProcessWide | None:
    """How this unit writes a scaler at the level of a module; None where a file of it cannot name that."""
    init = m.unit.inits[0]
    failure = Blocked(init.module, init.call, "AMP113", "amp.initialize", f"{name} of {module.display} is out of reach")
    plan = ProcessWide(m.unit, name, "", LastHome(module, failure))
    try:
        plan.settle([])
    except Blocked:
        return None
    return plan


def _set(m: Migration, plan: ProcessWide, home: Home) -> None:
    target, module = plan.target(home), home.scope.module
    quote = m.style(module).quote
    enabled = "" if home.flag.always else f", enabled={as_bool(m.project, home.scope, home.flag.text())}"
    scaler = f"{m.torch(module, home.scope)}.amp.GradScaler({quote}{m.options.device}{quote}{enabled})"
    m.create(home, [f"{target} = {scaler}"], [])
    m.set_for[home.init] = target
