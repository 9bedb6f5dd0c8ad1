"""What a name or an option was given last, where nothing on the way from there can have given it another."""

from __future__ import annotations

import ast

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.scope import Scope

STOPS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)
# What runs more than what stands above a statement before it: another turn of its body, another part of it.
AROUND = (ast.For, ast.AsyncFor, ast.While, ast.Try, getattr(ast, "TryStar", ast.Try))


def constant_above(scope: Scope, expr: ast.Name | ast.Attribute) -> ast.Constant | None:
    """`mode = "val"`, and below it in the same body, or deeper, what reads `mode`."""
    found = value_above(scope, expr) if syntax.text(expr) in _given_constants(scope.module) else None
    return found if isinstance(found, ast.Constant) else None


def value_above(scope: Scope, expr: ast.Name | ast.Attribute) -> ast.expr | None:
    """The same of any value."""
    module, text = scope.module, syntax.text(expr)
    if expr not in module.parents:
        return None
    root = text.partition(".")[0]
    bound = (n for n in scope.bindings.get(root, ()) if not isinstance(n, ast.arg))
    if any(module.function_around(n) is not module.function_around(expr) for n in bound):
        return None
    at: ast.AST = module.statement(expr)
    while not isinstance(at, STOPS):
        for stmt in reversed(module.beside(at)[0]):
            if isinstance(stmt, ast.Assign) and any(syntax.text(t) == text for t in stmt.targets):
                return stmt.value
            if _may_give(stmt, text, root):
                return None
        at = module.parents[at]
        if isinstance(at, AROUND) and _may_give(at, text, root):
            return None
    return None


@kept
def _given_constants(module: Module) -> frozenset[str]:
    """What a file assigns constants to."""
    given = (s for s in syntax.every(module.tree, ast.Assign) if isinstance(s.value, ast.Constant))
    return frozenset(syntax.text(t) for s in given for t in s.targets if isinstance(t, (ast.Name, ast.Attribute)))


def _may_give(stmt: ast.AST, text: str, root: str) -> bool:
    """Whether a statement may give a name, or what begins it, another value; an attribute also where its object is handed on."""
    for node in syntax.walk(stmt):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            if syntax.text(node) in (text, root):
                return True
        if isinstance(node, ast.Call) and text != root and root in {n.id for n in syntax.every(node, ast.Name)}:
            return True
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
            if root in {a.asname or a.name for a in getattr(node, "names", ())} | {getattr(node, "name", "")}:
                return True
    return False
