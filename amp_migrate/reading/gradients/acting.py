"""Which functions a unit's gradients pass through: those that scale, step or read, and what calls and is called by them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from amp_migrate.reading.gradients.events import Placements
from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import reached
from amp_migrate.reading.sites.apex import find_sites
from amp_migrate.reading.units.unit import Unit


def acting(unit: Unit, placed: Placements) -> tuple[set[Function], set[Module]]:
    """Functions in which something of this unit happens, and all that call them; files whose own code is such code.

    Whatever else runs, in a program of many units most of it, finds no scaled gradients of this one."""
    stmts = [*placed.unscale, *placed.moved, *placed.update, *placed.updated]
    places: list[tuple[Module, ast.AST]] = [(s.module, s.call) for s in unit.steps]
    places += [(x.module, node) for x in unit.losses for node in (x.call, x.with_stmt)]
    near = [*unit.modules, *(m for m in unit.project.modules if m not in unit.modules)]
    places += [(next((m for m in near if s in m.parents), unit.modules[0]), s) for s in stmts]
    ways = list(unit.project.ways_to(unit.project.way(m, n) for m, n in places))
    return {f for _, f in ways if f is not None}, {m for m, f in ways if f is None}


def apart(unit: Unit, acting: set[Function]) -> set[Function]:
    """Functions that set a model and an optimizer of their own up, and do nothing to this unit's: what they read are other
    gradients."""
    mine = {init.call for init in unit.inits}
    set_ups, several = unit.project.once(_set_ups)
    own = {f for c in mine if (f := set_ups.get(c)) is not None and several[f] <= mine}
    return several.keys() - own - acting


def _set_ups(project: Project) -> tuple[dict[ast.Call, Function], dict[Function, set[ast.Call]]]:
    """The calls of initialize of a program, by the functions that they stand in; see `Project.once`."""
    found = {
        site.call: function
        for module in project.modules
        if project.may_name_apex(module)
        for site in find_sites(project, module)
        if site.name == "apex.amp.initialize" and site.call is not None
        if (function := project.function_of(site.module, site.call)) is not None
    }
    several: dict[Function, set[ast.Call]] = {}
    for call, function in found.items():
        several.setdefault(function, set()).add(call)
    return found, several


def below(
    project: Project, functions: set[Function], modules: set[Module], without: Collection[Function] = ()
) -> set[Function]:
    """These functions, and all that they or the own code of these files call; not what only those `without` call."""

    def called(calls: Iterable[ast.AST]) -> list[Function]:
        found = (f for c in calls if isinstance(c, ast.Call) for f in project.resolved.get(c, ()))
        return [f for f in found if f not in without]

    starts = [*(f for f in functions if f not in without), *called(c for m in modules for c, _ in m.calls)]
    return set(reached(starts, lambda function: called(function.inside)))


def touching(
    unit: Unit, reader: GradientReader, among: set[Function], without: Collection[Function]
) -> dict[Function, None]:
    """Functions that scale, step or (of some) read gradients, and all that call them, but for those `without`."""
    queue: list[Function | None] = [unit.project.function_of(s.module, s.call) for s in unit.steps]
    queue += [unit.project.function_of(x.module, x.call) for x in unit.losses]
    tied = (m for m in unit.project.modules if m in unit.tied and "grad" in m.text)
    queue += [f for m in tied for f in unit.project.functions_of[m] if f in among and reader.function_reads(f, 0)]
    queue += [unit.project.function_of(s.module, s.node) for s in unit.sites]
    queue += [unit.project.function_of(module, node) for node, module in reader.divided.items()]
    seen: dict[Function, None] = {}
    while queue:
        function = queue.pop()
        if function is not None and function not in seen and function not in without:
            seen[function] = None
            queue += [unit.project.function_of(m, c) for m, c in unit.project.calls.get(function, [])]
    return seen
