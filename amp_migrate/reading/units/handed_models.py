"""The models of code whose set-up is out of sight: users hand them over, and nothing in sight says what was initialized."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.units.calls import Loss
from amp_migrate.reading.values.operations import LOSS_NAMES

ASKED = ("train", "eval", "parameters", "named_parameters")  # of networks alone


def handed_models(project: Project, losses: Sequence[Loss]) -> set[Slot]:
    """What is asked for what only networks have in the files that scale losses, and what is called to compute these."""
    modules = {loss.module for loss in losses}
    calls = [(m, f.value) for m in modules for name in ASKED for _, f in m.method_calls.get(name, ())]
    calls += [(loss.module, func) for loss in losses for func in _called_for(project, loss)]
    named = ((m, node) for m, node in calls if isinstance(node, (ast.Name, ast.Attribute)))
    return {slot for module, node in named for slot in project.slots(module, [node])}


def _called_for(project: Project, loss: Loss) -> Iterator[ast.expr]:
    """What a function calls of what it is given, or its object keeps, on the way to a loss that it scales; no criterion."""
    module, scope = loss.module, loss.module.scope_of(loss.call)
    for value in _leading_to(scope, loss):
        for call in (n for n in walk(value) if isinstance(n, ast.Call)):
            func = call.func
            func = func.value if isinstance(func, ast.Attribute) and func.attr == "forward" else func
            if not LOSS_NAMES.search(ast.unparse(func)) and not project.resolved.get(call) and _given(module, func):
                yield func


def _given(module: Module, func: ast.expr) -> bool:
    """Whether something is a parameter of the function around it, or of those around that, or a field of its object."""
    if isinstance(func, ast.Attribute):
        return module.is_self(func.value)
    scope = module.scope_of(func)
    owner = scope.lookup(func.id) if isinstance(func, ast.Name) else None
    return isinstance(func, ast.Name) and owner is not None and func.id in owner.params


def _leading_to(scope: Scope, loss: Loss) -> Collection[ast.expr]:
    """The values of a function that a loss is computed from."""
    stored = [n for s in scope.body for n in walk(s) if isinstance(n, (ast.Assign, ast.AugAssign, ast.AnnAssign))]
    found: dict[ast.expr, None] = {loss.loss: None}
    names = _names(loss.loss)
    grown = True
    while grown:
        grown = False
        for stmt in stored:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            if stmt.value is not None and stmt.value not in found and any(_names(t) & names for t in targets):
                found[stmt.value] = None
                names |= _names(stmt.value)
                grown = True
    return found


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in walk(node) if isinstance(n, ast.Name)}
