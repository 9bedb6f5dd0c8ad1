"""Regions that are told by a parameter whether they are on: `def evaluate(model, use_amp=False)`, for several programs."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import WITH_NODES, Module
from amp_migrate.reading.program.own_regions import OwnRegion, own_switch
from amp_migrate.reading.program.project import Project

Call = tuple[Function, Module, ast.Call]


def switch_parameter(project: Project, module: Module, own: OwnRegion) -> tuple[Function, str] | None:
    """The function that takes the switch of a region as a parameter, which is off where it is left out, and its name."""
    function = project.function_of(module, own.call)
    named = own.switch.id if isinstance(own.switch, ast.Name) else ""
    return (function, named) if function is not None and _is_off(function, named) else None


def switch_parameters(project: Project) -> dict[Function, str]:
    """The functions of a program that take such a parameter, for a region of their own or of one that they hand it on to, and
    its name; see `Project.once`."""
    found: dict[Function, str] = {}
    for module in project.modules:
        regions = (own_switch(module, s) for s in module.of(*WITH_NODES)) if "autocast" in module.text else ()
        for taken in (switch_parameter(project, module, own) for own in regions if own is not None):
            if taken is not None:
                found |= dict.fromkeys(_handing(project, *taken), taken[1])
    return found


def left_out(project: Project, function: Function, name: str, own: Collection[Module]) -> list[Call] | None:
    """The calls that leave such a parameter out, of the function and of those that hand one of that name on to it. None where
    a file of one's `own` gives it anything: it says by itself when the region is on."""
    found: list[Call] = []
    takers = list(_handing(project, function, name))
    for taker in takers:
        for module, call in project.calls.get(taker, ()):
            given = dict(project.arguments(taker, call)).get(name)
            if given is None:
                found.append((taker, module, call))
            elif project.function_of(module, call) not in takers and module in own:
                return None
    return found


def _handing(project: Project, function: Function, name: str) -> Iterator[Function]:
    """A function, and those that hand a parameter of that name on to it, through others too."""
    waiting, seen = [function], {function}
    for taker in waiting:
        yield taker
        for module, call in project.calls.get(taker, ()):
            given = dict(project.arguments(taker, call)).get(name)
            caller = project.function_of(module, call)
            handed = isinstance(given, ast.Name) and given.id == name
            if handed and caller is not None and caller not in seen and _is_off(caller, name):
                waiting.append(caller)
                seen.add(caller)


def _is_off(function: Function, name: str) -> bool:
    """Whether a function has a parameter that is False unless it is given, and gives the name nothing else."""
    default = function.defaults.get(name)
    return isinstance(default, ast.Constant) and default.value is False and len(function.scope.bindings[name]) == 1
