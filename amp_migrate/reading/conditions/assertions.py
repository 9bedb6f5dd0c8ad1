"""What a statement asserts: by `assert`, or by a function of the program that does nothing but raise where a test fails. Runs that
come by a place are those that nothing ended above it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project


class Ended(NamedTuple):
    """A statement that ends the runs in which a test comes out otherwise."""

    stmt: ast.stmt
    test: ast.expr
    holds: bool


def ended_above(project: Project, module: Module, node: ast.AST) -> Iterator[Ended]:
    """What other runs of a function are ended by above a place of it: `assert args.train`, `if not args.train: raise Error`."""
    for _, block in module.above(node, {module.scope_of(node).node}):
        for stmt in block:
            if isinstance(stmt, ast.If) and not stmt.orelse and isinstance(stmt.body[-1], (ast.Raise, ast.Return)):
                yield Ended(stmt, stmt.test, False)
            elif (test := asserted(project, stmt)) is not None:
                yield Ended(stmt, test, True)


def asserted(project: Project, node: ast.AST) -> ast.expr | None:
    """The test that a statement needs to hold: of `assert amp`, and of `require(amp is not None, "Apex is missing")`."""
    if isinstance(node, ast.Assert):
        return node.test
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return None
    tested = {_tested(function) for function in project.resolved.get(call, ())}
    if len(tested) != 1 or None in tested:
        return None
    function = project.resolved[call][0]
    return next((value for name, value in project.arguments(function, call) if name in tested), None)


def _tested(function: Function) -> str | None:
    """The parameter that a function raises without: `def require(held, message): if not held: raise Error(message)`."""
    body = [s for s in function.node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    only = body[0] if len(body) == 1 else None
    if isinstance(only, ast.Assert):
        test: ast.expr = only.test
    elif isinstance(only, ast.If) and not only.orelse and len(only.body) == 1 and isinstance(only.body[0], ast.Raise):
        if not isinstance(only.test, ast.UnaryOp) or not isinstance(only.test.op, ast.Not):
            return None
        test = only.test.operand
    else:
        return None
    return test.id if isinstance(test, ast.Name) and test.id in function.scope.params else None
