"""The settings of an FP16_Optimizer's loss scale, written for a GradScaler. No construct of its own."""

from __future__ import annotations

from amp_migrate.reading.program.definitions import unpacks
from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.switch.elsewhere import in_call, through_field, visible
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.legacy_scale import START, settings_of
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.scale.guarded import asked_first, guarded

DEFAULTS = {"init_scale": START, "growth_interval": "2000"}


def scaler_arguments(m: Migration, init: LegacyInit, home: Home) -> list[str]:
    """Arguments for the scaler's constructor, where it is created.

    Raises Blocked where a setting cannot be evaluated there.
    """
    arguments: list[str] = []
    asked = asked_first(m, home, settings_of(init.calls, init.choice))
    start = None if init.scale.settled else init.scale.start
    for name, text in (("init_scale", start), ("growth_interval", init.scale.interval)):
        if text is not None:
            arguments.append(f"{name}={guarded(_read(m, init, text, home.scope), asked, DEFAULTS[name])}")
    return arguments


def fixed_scale(m: Migration, init: LegacyInit, there: Scope) -> str:
    """What `update` is given in a scope after a step to hold a static scale; empty for a dynamic one.

    Raises Blocked where it cannot be evaluated there.
    """
    text = init.scale.fixed
    if text is None or init.scale.off:
        return ""
    return _read(m, init, text, there)


def _read(m: Migration, init: LegacyInit, text: str, there: Scope) -> str:
    """A setting as it reads in another scope."""
    if visible(m.project, text, init.site.scope, there):
        return text
    seen = through_field(m.project, text, init.site.scope, there) or _through_call(m, init, text, there)
    if seen is None:
        raise Blocked.at(
            init.site,
            "AMP114",
            f"{text} sets the loss scale, and {there.name or 'the module'} does not know it by that name: hand it there",
        )
    return seen


def _through_call(m: Migration, init: LegacyInit, text: str, there: Scope) -> str | None:
    """A setting in terms of what the one call there passes to the function that wraps the optimizer."""
    function = m.project.functions.get(init.site.scope.node)
    found = [] if function is None else m.project.calls.get(function, [])
    calls = [call for module, call in found if module.scope_of(call) is there]
    if function is None or len(calls) != 1:
        return None
    given = {name: there.module.source(value) for name, value in m.project.arguments(function, calls[0])}
    if not unpacks(calls[0]):
        given = {**function.constant_defaults, **given}
    return in_call(m.project, text, given, function.scope, there)
