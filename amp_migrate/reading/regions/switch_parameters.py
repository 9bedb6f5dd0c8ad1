"""Regions that are told by a parameter whether they are on: `def evaluate(model, use_amp=False)`, for several programs."""

from __future__ import annotations

import ast
from collections.abc import Collection

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.regions.own_regions import OwnRegion

Calls = list[tuple[Function, Module, ast.Call]]


def switch_parameter(project: Project, module: Module, own: OwnRegion) -> tuple[Function, str] | None:
    """The function that takes the switch of a region as a parameter, which is off where it is left out, and its name."""
    function = project.function_of(module, own.call)
    named = own.switch.id if isinstance(own.switch, ast.Name) else ""
    return (function, named) if function is not None and _is_off(function, named) else None


def left_out(project: Project, function: Function, name: str, own: Collection[Module]) -> Calls | None:
    """The calls that leave such a parameter out, of the function and of those that hand one of that name on to it. None where
    a file of one's `own` gives it anything: it says by itself when the region is on."""
    found: Calls = []
    waiting, seen = [function], {function}
    while waiting:
        taker = waiting.pop()
        for module, call in project.calls.get(taker, ()):
            given = dict(project.arguments(taker, call)).get(name)
            caller = project.function_of(module, call)
            if given is None:
                found.append((taker, module, call))
            elif isinstance(given, ast.Name) and given.id == name and caller is not None and _is_off(caller, name):
                waiting += [caller] if caller not in seen else []
                seen.add(caller)
            elif module in own:
                return None
    return found


def _is_off(function: Function, name: str) -> bool:
    """Whether a function has a parameter that is False unless it is given, and gives the name nothing else."""
    default = function.defaults.get(name)
    return isinstance(default, ast.Constant) and default.value is False and len(function.scope.bindings[name]) == 1
