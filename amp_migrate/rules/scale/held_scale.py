"""What `update` is given after a step, so that a static loss scale stays as it is.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize (loss_scale)
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update

Where the step cannot see the setting, or several `initialize` calls that lead to it ask for different ones, None or a
number goes with the scaler. No code of its own in the report: AMP114.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import partial

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.scaler.prepared import set_anew
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.legacy_scale import settings_of
from amp_migrate.reading.units.static_scale import pinned, static_scale
from amp_migrate.reading.units.unit import Blocked, Init, Step
from amp_migrate.rules.carried_setting import Conflict, handed
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.scale.guarded import asked_first, guarded
from amp_migrate.rules.scale.legacy import fixed_scale
from amp_migrate.rules.scale.run_time_scale import numeric, reaches, variable


@dataclass(frozen=True)
class Held:
    """The scale that `update` holds, and the condition under which it holds none: empty for always, None for never."""

    value: str = ""
    dynamic: str | None = ""


def held_scale(m: Migration, module: Module, stmt: ast.stmt, step: Step) -> Held:
    """What holds the scale after a step.

    Raises Blocked where the setting can neither be seen nor handed there.
    """
    plan = m.scaler_of(module, step.optimizer)
    inits = [i for i in m.inits_for(module, stmt, step.optimizer) if static_scale(i) != 1.0]  # 1.0: the scaler is off
    inits = [i for i in inits if not set_anew(i, inits)]
    settings = [_seen(m, plan, init, module, stmt) for init in inits]
    if not settings:
        return Held()
    if settings[0] is not None and len(set(settings)) == 1:
        return settings[0]
    return _handed(m, inits, module, stmt, step)


def _seen(m: Migration, plan: ScalerPlan, init: Init, module: Module, stmt: ast.stmt) -> Held | None:
    """The setting of one `initialize` call as it reads at a step; None where it cannot be seen there."""
    there = module.scope_of(stmt)
    scale = static_scale(init)
    settings = [scale] if isinstance(scale, ast.expr) else []
    settings += settings_of(init.calls, init.choice) if isinstance(init, LegacyInit) else []
    own = [home for home in plan.homes if home.init is init]  # where it is read under the switch alone:
    inside = any(home.above is not None or asked_first(m, home, settings) for home in own)
    if isinstance(init, LegacyInit):
        if inside and init.scale.fixed is not None and not init.scale.off:
            return None
        try:
            fixed = fixed_scale(m, init, there)
        except Blocked:
            return None
        if fixed:
            return Held(fixed, None)
    if not isinstance(scale, ast.expr):
        return Held() if scale is None else Held(repr(scale), None)
    held = pinned(init) is not None
    for home in plan.homes:
        if home.init is init and not home.carrier:
            name = variable(m, home, scale)
            if reaches(m, home, name, scale, there):
                return Held(name, None if held or numeric(scale, None) else f"{name} is None")
    if inside:
        return None
    seen = plan.as_seen(init.module.source(scale), init.site.scope, there)
    if seen is None or held or not isinstance(scale, (ast.Name, ast.Attribute, ast.Subscript)):
        return None
    quote = m.style(module).quote
    dynamic = f"{seen} in (None, {quote}dynamic{quote})"
    return Held(f"None if {dynamic} else float({seen})", dynamic)


def _handed(m: Migration, inits: list[Init], module: Module, stmt: ast.stmt, step: Step) -> Held:
    """The setting as a value of its own, which goes where the scaler goes."""
    deciding = next((i for i in inits if isinstance(static_scale(i), ast.expr)), inits[0])
    try:
        name = handed(m, module, stmt, step, "loss_scale", "the static loss scale, or None,", partial(_at_home, m))
    except (Blocked, Conflict) as failure:
        scale = static_scale(deciding)
        if isinstance(scale, ast.expr) and isinstance(failure, Blocked):
            text = f"{deciding.module.source(scale)} decides at run time whether the scale is static"
        else:
            text = "several calls of initialize ask for different loss scales"
        message = f"{text}, and the step cannot see it; hand it there"
        raise Blocked(deciding.module, deciding.call, "AMP114", "amp.initialize", message) from failure
    return Held(name, f"{name} is None")


def _at_home(m: Migration, home: Home) -> str:
    """The setting where the scaler is created: the variable that holds it, or the value itself."""
    if isinstance(home.init, LegacyInit) and (fixed := fixed_scale(m, home.init, home.scope)):
        settings = settings_of(home.init.calls, home.init.choice)
        return guarded(fixed, asked_first(m, home, settings), "None")
    scale = static_scale(home.init)
    if isinstance(scale, ast.expr):
        return variable(m, home, scale)
    return "None" if scale in (None, 1.0) else repr(scale)
