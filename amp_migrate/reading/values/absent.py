"""Optimizers that a function may be called without: `def attack(model, x, y, opt=None)`.

Where it is called without one nothing is scaled, so its scaler may be left out just like the optimizer.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from itertools import pairwise

from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.definitions import Function, is_none
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.constants import NOTHING


def optional_optimizers(project: Project, function: Function, optimizers: Collection[Slot]) -> list[str]:
    """Parameters that hold one of the optimizers, are None by default, and that some call leaves so."""

    values, calls = project.once(Values), project.calls.get(function, ())
    names = [
        n for n, default in function.defaults.items() if is_none(default) and Slot(function.scope, n) in optimizers
    ]
    once = [n for n in names if len(function.scope.bindings[n]) == 1]
    return [n for n in once if any(values.given(function, module, call, n) == NOTHING for module, call in calls)]


def may_be_none(project: Project, module: Module, name: ast.Name) -> bool:
    """Whether a variable may be None, or is a parameter that may be left out."""
    function = project.function_of(module, name)
    if function is not None and is_none(function.defaults.get(name.id)):
        return True
    return any(v.constant is None for v in project.once(Values).may_be(module, name))


def asks_for(test: ast.expr, name: str) -> bool | None:
    """What a test says of a name: True where it holds when that is given, False where it holds when that is None."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = asks_for(test.operand, name)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == name:
        if len(test.ops) == 1 and is_none(test.comparators[0]):
            return isinstance(test.ops[0], (ast.IsNot, ast.NotEq))
        return None
    return True if isinstance(test, ast.Name) and test.id == name else None


def only_with(project: Project, function: Function, node: ast.AST, name: str) -> bool:
    """Whether a node is only reached where a parameter is not None, or hands that parameter on.

    It is where a test above it says so, where the calls that leave the parameter out pass constants under which one of
    those tests fails, and where the block it stands in uses the parameter in a way that None does not survive.
    """
    if isinstance(node, ast.Name) and node.id == name:
        return True
    around = branches_around(function.module, node, {function.node})
    tests = [(b.test.test, b.holds) for b in around if isinstance(b.test, ast.If)]
    if any(asks_for(test, name) is holds for test, holds in tests):
        return True
    for child, parent in pairwise((node, *function.module.ancestors(node))):
        if isinstance(parent, ast.stmt) and _needs(function, child, parent, name):
            return True
        if parent is function.node:
            break
    return _only_called_with(project, function, tests, name)


def _needs(function: Function, stmt: ast.AST, holder: ast.AST, name: str) -> bool:
    """Whether a run that meets a statement in a block uses the parameter in that block: no other branch joins it there."""
    if not isinstance(stmt, ast.stmt) or (isinstance(holder, ast.If) and holder.orelse):
        return False
    block = function.module.block(stmt)
    here = block.index(stmt)
    before = [s for s in block[:here] if not _compound(s)]
    after: list[ast.stmt] = []
    for other in block[here + 1 :]:
        if any(isinstance(n, (ast.Return, ast.Break, ast.Continue, ast.Raise)) for n in walk(other)):
            break
        if not _compound(other):
            after.append(other)
    own = [stmt] if not _compound(stmt) else []
    return any(_dereferenced(s, name) for s in (*before, *own, *after))


def _compound(stmt: ast.stmt) -> bool:
    """Whether parts of a statement may run, and may not."""
    return bool(getattr(stmt, "body", None)) and not isinstance(stmt, (ast.With, ast.AsyncWith))


def _dereferenced(stmt: ast.stmt, name: str) -> bool:
    """Whether a statement asks something of a parameter that None does not have: `optimizer.step()`."""
    lazy = (ast.IfExp, ast.BoolOp, ast.Lambda, *FUNCTION_NODES, ast.ClassDef, ast.comprehension)
    if any(isinstance(n, lazy) for n in walk(stmt)):
        return False
    return any(
        isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == name for n in walk(stmt)
    )


def _only_called_with(project: Project, function: Function, tests: list[tuple[ast.expr, bool]], name: str) -> bool:
    """Whether every call that leaves the parameter out passes constants with which a node under these tests is not met:
    `run(loader, "valid")` and `if mode == "train":`."""
    calls = project.calls.get(function, ())
    if not tests or not calls:
        return False
    values = project.once(Values)
    for module, call in calls:
        left_out = None in (values.given(function, module, call, name) or ())
        if left_out and not any(values.told(function, module, call, test) is (not inside) for test, inside in tests):
            return False
    return True
