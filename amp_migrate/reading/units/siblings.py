"""Whose objects never meet a unit: classes that share a base with the one that sets mixed precision up. A field that the base
has is another variable in an object of theirs."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.program.project import Project


def reached(project: Project, seeds: Iterable[Slot], setting_up: Iterable[Scope]) -> tuple[set[Slot], set[ClassInfo]]:
    """The variables that may hold what the seeds hold, or what came to be in them; and the classes whose objects hold none.
    `setting_up`: where that is done."""
    seeds = set(seeds)
    besides = _siblings(project, setting_up)
    while True:
        found = project.reaches(project.origins(seeds, besides, lambda slot: _made_for_all(project, slot)), besides)
        fed = besides & {project.class_holding(slot) for slot in found - seeds}
        if not fed:
            return found, besides
        besides -= fed  # an object of theirs is given the same


def _siblings(project: Project, setting_up: Iterable[Scope]) -> set[ClassInfo]:
    """The classes with a constructor of their own of which no object can be one of a class that sets mixed precision up."""
    found: set[ClassInfo] | None = None
    for scope in setting_up:
        cls = project.class_of(scope)
        if cls is None:
            return set()
        shared = {*cls.ancestry()}
        apart = {
            c
            for c in cls.family.descendants()
            if not cls.shares_instances(c) and (made := c.method("__init__")) is not None and made.cls not in shared
        }
        found = apart if found is None else found & apart
    return found or set()


def _made_for_all(project: Project, slot: Slot) -> bool:
    """Whether a slot has what one function makes for the factories of several kinds of thing, `registry.get(name)(**cfg)`:
    what one of these gives is none of what the others do."""
    function = slot.holder
    if slot.name != "return" or not isinstance(function, Function) or not _makes_chosen(project, function):
        return False
    kept = (s for target in project.flows.get(slot, ()) for s in (target, *project.flows.get(target, ())))
    return len({s.holder for s in kept if s.name == "return" and s.holder is not function}) > 1


def _makes_chosen(project: Project, function: Function) -> bool:
    """Whether a function returns an object of what it looked up: neither a class nor a function that is seen."""
    module, scope = function.module, function.scope
    values = [n.value for n in function.inside if isinstance(n, ast.Return)]
    named = {v.id for v in values if isinstance(v, ast.Name)}
    assigned = (n for n in function.inside if isinstance(n, ast.Assign))
    values += [n.value for n in assigned if any(isinstance(t, ast.Name) and t.id in named for t in n.targets)]
    calls = (v for v in values if isinstance(v, ast.Call) and not project.resolved.get(v))
    return any(
        isinstance(c.func, ast.Call | ast.Subscript)
        or (isinstance(c.func, ast.Name) and c.func.id in scope.bindings and project.find_class(module, c.func) is None)
        for c in calls
    )
