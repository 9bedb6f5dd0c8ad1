"""Closures that a wrapper's step only hands on: `def step(self, closure=None): self.optimizer.step(closure)`, or whatever
it is given: `def step(self, *args, **kwargs): self.optimizer.step(*args, **kwargs)`."""

from __future__ import annotations

import ast
from collections.abc import Collection

from amp_migrate.reading.conditions.chains import exclusive
from amp_migrate.reading.program.definitions import is_none
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.absent import asks_for
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.reaching import reaching
from amp_migrate.reading.values.table import Value


def given_closures(call: ast.Call) -> list[ast.expr]:
    """What a call of `step` hands over as its closure, but a written None."""
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "closure")]
    return [value for value in given if not isinstance(value, ast.Constant)]


def may_run_its_own(module: Module, call: ast.Call) -> bool:
    """Whether a step may be given a function that its scope defines: the backward is in there on the paths without another."""
    bindings = module.scope_of(call).bindings
    names = {value.id for value in given_closures(call) if isinstance(value, ast.Name)}
    return any(isinstance(b, FUNCTION_NODES) for name in names for b in bindings.get(name, ()))


def is_handed_on(project: Project, module: Module, value: ast.expr) -> bool:
    """Whether an argument is a parameter that is None by default, or that takes the rest, and that every call in sight
    leaves so."""
    function = project.function_of(module, value)
    values = project.once(Values)
    if function is not None and isinstance(value, ast.Starred) and isinstance(value.value, ast.Name):
        rest, named = function.node.args.vararg, function.node.args.kwarg
        if rest is None or value.value.id != rest.arg:
            return False
        found = values.may_be(module, value.value, (None,))
        found |= values.passed(function, named.arg, ("closure",)) if named is not None else frozenset()
    elif function is not None and isinstance(value, ast.Name) and is_none(function.defaults.get(value.id)):
        found = values.may_be(module, value)
    else:
        return False
    starred = isinstance(value, ast.Starred)
    return all(v.constant is None or _not_given(project, v, starred) for v in found)


def is_none_beside(module: Module, value: ast.expr, scaled: Collection[ast.stmt]) -> bool:
    """Whether an argument is a variable that is given None, and anything else only in a branch that leaves out all of some
    statements: `closure = None`, and `def closure()` in the `else` of what scales the loss."""
    if not isinstance(value, ast.Name) or not scaled:
        return False
    bindings = reaching(module.scope_of(value), value)
    if any(isinstance(b, ast.arg) for b in bindings):
        return False
    given = [b for b in bindings if not isinstance(at := module.statement(b), ast.Assign) or not is_none(at.value)]
    if len(given) == len(bindings):
        return False
    return all(exclusive(module, b, stmt) for b in given for stmt in scaled)


def _not_given(project: Project, value: Value, starred: bool) -> bool:
    """Whether a value is a parameter that nothing in sight gives and that is None then, or `starred` that is empty."""
    if value.kind != "parameter" or not isinstance(value.node, ast.arg):
        return False
    function = project.functions[value.module.parents[value.module.parents[value.node]]]
    a = function.node.args
    return is_none(function.defaults.get(value.node.arg)) or (starred and value.node in (a.vararg, a.kwarg))


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
