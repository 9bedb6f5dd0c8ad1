"""Which runs never come by the method that creates an object's scaler."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import reached, walk
from amp_migrate.reading.scaler.guards import is_main_guard, runs_once
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.switch.flags import guard_parts


def left_out(project: Project, home: Home) -> bool:
    """Whether runs may leave out what creates a scaler for its object: some call of the method stands under a condition
    (`if params.apex: self.init_amp()`), the method returns above it (`if not self.fp16: return model`), or it stays under
    its condition."""
    function = project.functions.get(home.scope.node)
    if home.kind != "self" or home.carrier or function is None or function.cls is None:
        return False
    if home.stays or _returns_above(home, function):
        return True
    cls = function.cls

    def above(called: Function) -> list[Function]:
        outer = (project.function_of(module, call) for module, call in project.calls.get(called, ()))
        return [f for f in outer if f and f.cls and f.name != "__init__" and f.cls.shares_instances(cls)]

    calls = (c for f in reached([function], above) for c in project.calls.get(f, ()))
    guards = (g for module, call in calls for g in guard_parts(project, module, module.statement(call)))
    return any(
        parts != [] and not runs_once(guard) and not is_main_guard(guard) and not _once(guard, function)
        for guard, parts in guards
    )


def _returns_above(home: Home, function: Function) -> bool:
    module = home.scope.module
    for node in function.inside:
        if isinstance(node, ast.Return) and node.lineno < home.anchor.lineno and module.scope_of(node) is home.scope:
            guards = [a for a in module.ancestors(node) if isinstance(a, ast.If)]
            if guards and not any(home.anchor in ast.walk(g) or _once(g, function) or runs_once(g) for g in guards):
                return True
    return False


def _once(guard: ast.If, function: Function) -> bool:
    """Whether a test asks whether a method has run: `if not self.ready:` or `if self.optimizer is None:`, which it sets."""
    stored = {n.attr for n in function.inside if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    test = guard.test
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    is_none = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is)
    asked = {n.attr for n in walk(test) if isinstance(n, ast.Attribute)}
    return (negated or is_none) and bool(asked & stored)
