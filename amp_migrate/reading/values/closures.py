"""Closures that a wrapper's step only hands on: `def step(self, closure=None): self.optimizer.step(closure)`."""

from __future__ import annotations

import ast
from collections.abc import Collection

from amp_migrate.reading.program.definitions import Function, is_none
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.absent import asks_for


def given_closures(call: ast.Call) -> list[ast.expr]:
    """What a call of `step` hands over as its closure, but a written None."""
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "closure")]
    return [value for value in given if not isinstance(value, ast.Constant)]


def is_handed_on(project: Project, module: Module, value: ast.expr, seen: Collection[Function] = ()) -> bool:
    """Whether an argument is a parameter that is None by default, and that every call in sight leaves so."""
    function = project.functions.get(module.scope_of(value).node)
    if function is None or not isinstance(value, ast.Name) or not is_none(function.defaults.get(value.id)):
        return False
    if function in seen:
        return True
    return len(function.scope.bindings[value.id]) == 1 and all(
        _leaves_out(project, caller, call, function, value.id, (*seen, function))
        for caller, call in project.calls.get(function, ())
    )


def _leaves_out(
    project: Project, caller: Module, call: ast.Call, function: Function, name: str, seen: Collection[Function]
) -> bool:
    """Whether a call does not give a parameter, gives None, or hands on one that nothing gives either."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return False
    value = dict(project.arguments(function, call)).get(name)
    return value is None or is_none(value) or is_handed_on(project, caller, value, seen)


def refused_before(module: Module, stmt: ast.stmt, name: str) -> bool:
    """Whether the statements of its block before a step let no closure through: `if closure is not None: raise ...`."""
    for earlier in module.block(stmt):
        if earlier is stmt:
            return False
        if isinstance(earlier, ast.If) and asks_for(earlier.test, name) and isinstance(earlier.body[-1], ast.Raise):
            return True
        if isinstance(earlier, ast.Assert) and asks_for(earlier.test, name) is False:
            return True
    return False
