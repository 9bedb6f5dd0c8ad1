"""Calls of what a variable holds: `net(x)`, `self.model_fn(model, batch)`, `STEPS[name](model, batch)`."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.regions.no_forwards import holds
from amp_migrate.reading.values.analysis import Values


def of_variable(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether a call runs what a variable holds, a name or an attribute of the object."""
    func = call.func
    if project.resolved.get(call):
        return False
    if isinstance(func, ast.Name):
        scope = module.scope_of(func)
        owner = scope.lookup(func.id)
        bound = owner.bindings.get(func.id, []) if owner is not None else []
        return any(isinstance(b, (ast.Name, ast.arg)) for b in bound)
    if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name):
        return False
    cls = project.class_of(module.scope_of(func))
    return cls is not None and module.is_self(func.value) and holds(cls, func.attr)


def functions_held(project: Project, module: Module, call: ast.Call) -> list[Function]:
    """All that a call of a variable may run, where that is functions of the program and nothing else."""
    held = [project.functions.get(value.node) for value in project.once(Values).may_be(module, call.func)]
    functions = [f for f in held if f is not None]
    return sorted(functions, key=lambda f: (f.module.display, f.node.lineno)) if len(functions) == len(held) else []
