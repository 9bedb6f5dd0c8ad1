"""Whether one place is done with in a run when it comes to another."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import LOOP_NODES, Module
from amp_migrate.reading.program.processes import imported
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.sources import Sources

Place = tuple[Module, ast.AST]

DEPTH = 4  # calls followed up


def set_before(project: Project, place: Place, holder: ast.expr | None, then: Place) -> bool:
    """The same of a place that sets a field: an object is made before whatever is done with it elsewhere."""
    module, node = place
    scope = module.scope_of(node)
    function = project.functions.get(scope.node)
    fresh = isinstance(holder, ast.Name) and holder.id == scope.self_name
    if fresh and function is not None and function.name == "__init__" and then[0].scope_of(then[1]) is not scope:
        return True
    return comes_before(project, place, then)


def comes_before(project: Project, place: Place, then: Place, depth: int = DEPTH) -> bool:
    """Whether a place stands above another, or what leads to it does, and is not come to again but on the way to that."""
    (module, node), (there, other) = place, then
    scope, home = module.scope_of(node), there.scope_of(other)
    if scope is home:
        loops = {a for a in module.ancestors(node) if isinstance(a, LOOP_NODES)}
        above = module.statement(node).lineno < there.statement(other).lineno
        return above and loops.issubset(there.ancestors(other))
    calls = _calls(project, project.functions.get(home.node))
    if calls is None and scope.is_module and module in (there, *imported(project, there)):
        return True  # a file is loaded before what calls its functions
    if not depth:
        return False
    if calls and all(comes_before(project, place, call, depth - 1) for call in calls):
        return True
    leading = _calls(project, project.functions.get(scope.node))
    return bool(leading) and all(comes_before(project, call, then, depth - 1) for call in leading or ())


def _calls(project: Project, function: Function | None) -> list[Place] | None:
    """The calls of a function; None where none is in sight, or others may be."""
    calls = project.calls.get(function, ()) if function is not None else ()
    if function is None or not calls or project.once(Sources).is_value(function):
        return None
    return list(calls)
