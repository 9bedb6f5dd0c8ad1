"""What the set-ups ask by which a program comes to a function, on each way to it: of one unit, and of others.

A run that trains sets Apex up in `train`, one that only predicts sets it up for itself: `if args.fp16: amp.initialize(model)`.
Under one switch both, an evaluation that they share was in half precision wherever that is on.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.switch.flag import Flag
from amp_migrate.reading.units.unit import Init, Unit
from amp_migrate.reading.values.sources import Sources

DEPTH = 4  # calls followed up
Asked = Callable[[Init, Module, ast.Call], Flag | None]


def on_ways(unit: Unit, scope: Scope, asked: Asked, depth: int = 0) -> list[set[str]] | None:
    """For each call that leads to a function what the last set-up above it asks, besides what stands around the call: `asked`
    says how that reads. None where a way comes by no set-up, or is not followed."""
    project = unit.project
    function = project.functions.get(scope.node)
    if function is None or depth > DEPTH or project.once(Sources).is_value(function):
        return None
    found: list[set[str]] = []
    for module, call in project.calls.get(function, ()):
        there = module.scope_of(call)
        above = (i for i in (*unit.inits, *unit.beside) if i.site.scope is there and i.stands_above(module, call))
        last = max(above, key=lambda i: i.stmt.lineno, default=None)
        if last is None:
            more = on_ways(unit, there, asked, depth + 1)
        else:
            flag = asked(last, module, call)
            more = [{*flag.parts}] if flag is not None and flag.parts is not None else None
        if more is None:
            return None
        found += more
    return found or None
