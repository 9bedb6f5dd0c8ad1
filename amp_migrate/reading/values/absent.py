"""Optimizers that a function may be called without: `def attack(model, x, y, opt=None)`.

Where it is called without one nothing is scaled, so its scaler may be left out just like the optimizer.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from amp_migrate.reading.program.definitions import Function, is_none
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.project import Project


def optional_optimizers(project: Project, function: Function, optimizers: Collection[Slot]) -> list[str]:
    """Parameters that hold one of the optimizers, are None by default, and that some call leaves so."""
    found: list[str] = []
    for name, default in function.defaults.items():
        slot = Slot(function.scope, name)
        if not is_none(default) or slot not in optimizers or len(function.scope.bindings[name]) != 1:
            continue
        given = [dict(project.arguments(function, call)).get(name) for _, call in project.calls.get(function, ())]
        if any(value is None or is_none(value) for value in given):
            found.append(name)
    return found


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


def only_with(function: Function, node: ast.AST, name: str) -> bool:
    """Whether a node is only reached where a parameter is not None, or hands that parameter on."""
    if isinstance(node, ast.Name) and node.id == name:
        return True
    child = node
    for parent in function.module.ancestors(node):
        if parent is function.node:
            return False
        if isinstance(parent, ast.If) and child is not parent.test:
            given = asks_for(parent.test, name)
            if given is not None and given is any(child is s for s in parent.body):
                return True
        child = parent
    return False
