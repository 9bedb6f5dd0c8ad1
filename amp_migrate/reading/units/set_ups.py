"""Where mixed precision is set up: the `initialize` calls; for an `FP16_Optimizer`, where the program makes its model half."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.units.unit import Unit


def set_ups(unit: Unit) -> list[tuple[Module, ast.Call]]:
    """The calls after which a unit's models run in half precision."""
    found = (place for init in unit.inits for place in init.halving or [(init.module, init.call)])
    return list(dict.fromkeys(found))
