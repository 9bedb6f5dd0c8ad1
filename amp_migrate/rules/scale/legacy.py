"""The settings of an FP16_Optimizer's loss scale, written for a GradScaler. No construct of its own."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.switch.flags import visible
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration


def scaler_arguments(m: Migration, init: LegacyInit, there: Scope) -> list[str]:
    """Arguments for the scaler's constructor, where it is created.

    Raises Blocked where a setting cannot be evaluated there.
    """
    arguments: list[str] = []
    for name, text in (("init_scale", init.scale.start), ("growth_interval", init.scale.interval)):
        if text is not None:
            _check(m, init, text, there)
            arguments.append(f"{name}={text}")
    return arguments


def fixed_scale(m: Migration, init: LegacyInit, module: Module, stmt: ast.stmt) -> str:
    """What `update` is given after a step to hold a static scale; empty for a dynamic one."""
    text = init.scale.fixed
    if text is None or init.scale.off:
        return ""
    _check(m, init, text, module.scope_of(stmt))
    return text


def _check(m: Migration, init: LegacyInit, text: str, there: Scope) -> None:
    if not visible(m.project, text, init.site.scope, there):
        raise Blocked(
            init.module,
            init.call,
            "AMP114",
            init.site.construct,
            f"{text} sets the loss scale, and {there.name or 'the module'} does not know it by that name: hand it there",
        )
