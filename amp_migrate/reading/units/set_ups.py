"""Where mixed precision is set up: the `initialize` calls; for an `FP16_Optimizer`, where the program makes its model half."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.sites.half_casts import cast_to_half
from amp_migrate.reading.units.legacy_models import HALVERS
from amp_migrate.reading.units.unit import Unit


def set_ups(unit: Unit) -> list[tuple[Module, ast.Call]]:
    """The calls after which a unit's models run in half precision."""
    found: list[tuple[Module, ast.Call]] = []
    for init in unit.inits:
        halving = _halving(unit) if init.brings_scale else []
        found += [place for place in halving or [(init.module, init.call)] if place not in found]
    return found


def _halving(unit: Unit) -> list[tuple[Module, ast.Call]]:
    """The calls that make the models of a unit half by hand."""
    return [
        (module, call)
        for module in unit.modules
        for call, _ in module.calls
        if (cast_to_half(module, call) and _is_model(unit, module, call.func.value))  # type: ignore[attr-defined]
        or (called_name(call) in HALVERS and any(_is_model(unit, module, a) for a in call.args))
    ]


def _is_model(unit: Unit, module: Module, value: ast.expr) -> bool:
    return isinstance(value, (ast.Name, ast.Attribute)) and unit.holds_model(module, value)
