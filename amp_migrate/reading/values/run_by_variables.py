"""Functions of the program that a variable holds where it is called: `train(model, eval_fn=evaluate)`, and there `eval_fn(model)`.

What calls such a function is not all in sight, so that nothing may be handed to it anew; what it is given is seen.
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.occurrences import PLACES, Occurrences
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.sources import Sources


def passed(project: Project) -> dict[Slot, list[tuple[Module, ast.expr]]]:
    """What the parameters of such functions are given by these calls; see `Project.once`."""
    found: dict[Slot, list[tuple[Module, ast.expr]]] = {}
    sources = project.once(Sources)
    for function in project.functions.values():
        parent = function.scope.parent
        if parent is None or parent.is_class or not sources.is_value(function):
            continue
        own = Slot(parent, function.name)
        for module, call in _calls(project, project.reaches({own}) - {own}):
            for parameter, value in project.arguments(function, call):
                found.setdefault(Slot(function.scope, parameter), []).append((module, value))
    return found


def _calls(project: Project, slots: set[Slot]) -> list[tuple[Module, ast.Call]]:
    """The calls of what some variables hold."""
    return [
        (module, call)
        for module in (project.modules if slots else ())
        for call, _ in project.once(Occurrences, module).calls_about(slots)
        if not project.resolved.get(call) and project.slot(module, call.func) in slots
    ]


def values_of(project: Project, parameter: Slot) -> list[Slot | None]:
    """Where what a parameter is given by such calls lives; None: in no variable."""
    values = project.once(passed).get(parameter, [])
    return [project.slot(m, v) if isinstance(v, PLACES) else None for m, v in values]


def given(project: Project, slots: set[Slot]) -> set[Slot]:
    """The parameters of such functions that are given what lives in some variables, and where that goes from there."""
    found: set[Slot] = set()
    while True:
        known = slots | found
        asked = (p for p in project.once(passed) if p not in known)
        more = {p for p in asked if not known.isdisjoint(values_of(project, p))}
        if not more:
            return found
        found |= project.reaches(more)
