"""Closures that a wrapper's step only hands on: `def step(self, closure=None): self.optimizer.step(closure)`, or whatever
it is given: `def step(self, *args, **kwargs): self.optimizer.step(*args, **kwargs)`."""

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
    """Whether an argument is a parameter that is None by default, or that takes the rest, and that every call in sight
    leaves so."""
    function = project.functions.get(module.scope_of(value).node)
    if isinstance(value, ast.Starred):
        return function is not None and _rest(function, value) is not None and _gives_no_rest(project, function, seen)
    if function is None or not isinstance(value, ast.Name) or not is_none(function.defaults.get(value.id)):
        return False
    if function in seen:
        return True
    return len(function.scope.bindings[value.id]) == 1 and all(
        _leaves_out(project, caller, call, function, value.id, (*seen, function))
        for caller, call in project.calls.get(function, ())
    )


def _rest(function: Function, value: ast.Starred) -> str | None:
    """The parameter that takes the rest of what a function is given by position, where an argument hands that on."""
    rest = function.node.args.vararg
    named = isinstance(value.value, ast.Name) and rest is not None and value.value.id == rest.arg
    return rest.arg if named and rest is not None and len(function.scope.bindings[rest.arg]) == 1 else None


def _gives_no_rest(project: Project, function: Function, seen: Collection[Function]) -> bool:
    """Whether no call in sight gives a function more by position than it has parameters for, or a closure by name."""
    if function in seen:
        return True
    for caller, call in project.calls.get(function, ()):
        if any(k.arg == "closure" for k in call.keywords):
            return False
        given = call.args[1:] if project.passes_self(function, call) else call.args
        for index, value in enumerate(given):
            if isinstance(value, ast.Starred):
                if not is_handed_on(project, caller, value, (*seen, function)):
                    return False
            elif index >= len(function.positional) and not is_none(value):
                return False
    return True


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
