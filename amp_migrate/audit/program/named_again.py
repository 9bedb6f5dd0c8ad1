"""A name that is a class first, and later what that made: `crf = CRF`, then `crf = crf(config)`."""

from __future__ import annotations

import ast

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import BLOCKS, Scope


@kept
def is_made_again(scope: Scope, name: str) -> bool:
    """Whether a name that a scope binds is somewhere given what calling it makes."""
    return any(_makes(node, name) for node in scope.bindings.get(name, ()))


def made_by_then(found: Scope, expr: ast.Name) -> bool:
    """Whether a name is, where it stands, what a call of it made: in the order of the statements before it."""
    module, name = found.module, expr.id
    if expr not in module.parents:
        return False
    at: ast.AST = module.statement(expr)
    while (holder := module.parents.get(at)) is not None:
        if (made := _last(module.beside(at)[0], name)) is not None:
            return made
        if holder is found.node:
            return False
        if isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):  # which runs later
            return bool(_last(getattr(found.node, "body", []), name))
        at = holder
    return False


def _last(block: list[ast.stmt], name: str) -> bool | None:
    """Whether the last statement of a block that binds a name gives it what calling it makes; None: no statement does."""
    for stmt in reversed(block):
        if isinstance(stmt, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in stmt.targets):
            if _makes(stmt, name):
                return True
            if not any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(stmt.value)):
                return _constructs(stmt.value)
        elif isinstance(stmt, (ast.If, ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.While, ast.Try)):
            found = [_last(getattr(stmt, field, []), name) for field in BLOCKS]
            if any(f is not None for f in found):
                return all(f is not False for f in found)
    return None


def _makes(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == name
        and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    )


def _constructs(value: ast.expr) -> bool:
    """Whether a value is written as an object that is made: `Net(config)`."""
    return isinstance(value, ast.Call) and syntax.last(value.func)[:1].isupper()
