"""The programs of a project that never call what initializes, though they may import it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import passing_by, starts_of, when_run
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.sources import Sources

if TYPE_CHECKING:
    from amp_migrate.reading.units.calls import Init


def passing(project: Project, inits: Sequence[Init]) -> frozenset[Module]:
    """The files that are run by themselves and come by no call of `initialize`; none where that cannot be told."""
    functions = [project.functions.get(i.site.scope.node) for i in inits if not when_run(i.module, i.call)]
    known = [f for f in functions if f is not None]
    held = any(project.once(Sources).is_value(f) for f in known)  # what calls it is not seen
    if not inits or len(known) < len(functions) or held:  # whoever imports it initializes
        return frozenset()
    made = {f.cls.name for f in known if f.cls is not None and f.name == "__init__"}
    found = passing_by(project, known) - {i.module for i in inits}
    return frozenset(m for m in found if not any(_kept(m, name) for name in made))


def only_run_by(project: Project, function: Function, files: frozenset[Module]) -> bool:
    """Whether all that comes to a function begins in one of some files that are imported by none, and nothing else may run it
    or what leads to it: as a value, or by a method's name."""
    if not files:
        return False
    ways = project.callers(function)
    starts = starts_of(project, ways)
    if not starts or not all(s.module in files for s in starts):
        return False
    return not any(_may_be_run(project, way, files) for way in ways if isinstance(way, Function))


def _may_be_run(project: Project, function: Function, files: frozenset[Module]) -> bool:
    if project.once(Sources).is_value(function):
        return True
    if function.name.startswith("__"):
        return False  # by that name a class asks for its base's
    elsewhere = (m for m in project.modules if m not in files)
    calls = (call for m in elsewhere for call, _ in m.method_calls.get(function.name, ()))
    return function.cls is not None and any(not project.resolved.get(call) for call in calls)


def _kept(module: Module, name: str) -> bool:
    """Whether a file has a class as a value, which may be made by whatever gets it: `KINDS = {"train": Trainer}`."""
    named = [*module.loads.get(name, ()), *(n for n in module.named.get(name, ()) if isinstance(n, ast.Attribute))]
    parents = ((n, module.parents.get(n)) for n in named)
    return any(not (isinstance(parent, ast.Call) and parent.func is n) for n, parent in parents)
