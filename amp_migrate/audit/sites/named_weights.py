"""Which weights a place is about that is come to for those of some names alone: `for name, p in net.named_parameters():` with
`if "embeddings." in name:`."""

from __future__ import annotations

import ast
import re

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.within import tests_around

EMBEDDING = re.compile(r"(?:^|[._])(?:emb|embeds?|embeddings?|wte|wpe)(?:$|[._\d])", re.IGNORECASE)


def of_embeddings(values: Values, scope: Scope, node: ast.AST) -> bool:
    """Whether a place is come to for embeddings alone, by their names: nothing makes half copies of those."""
    module = scope.module
    names = _names(module, node)
    for test, came in tests_around(module, node) if names else ():
        if came and isinstance(wanted := _wanted(test, names), ast.expr):
            texts = values.constants(scope, wanted) or {None}
            if all(isinstance(text, str) and EMBEDDING.search(text) for text in texts):
                return True
    return False


def _names(module: Module, node: ast.AST) -> set[str]:
    """What the loops around a place call the names of weights."""
    found: set[str] = set()
    for loop in module.ancestors(node):
        if (
            isinstance(loop, ast.For)
            and isinstance(loop.target, ast.Tuple)
            and isinstance(loop.target.elts[0], ast.Name)
        ):
            if any(syntax.last(c.func) == "named_parameters" for c in syntax.every(loop.iter, ast.Call)):
                found.add(loop.target.elts[0].id)
    return found


def _wanted(test: ast.expr, names: set[str]) -> ast.expr | None:
    """What a name must hold or begin with for a test to hold."""
    match test:
        case ast.BoolOp(op=ast.And()):
            return next((found for part in test.values if (found := _wanted(part, names)) is not None), None)
        case ast.Compare(left=wanted, ops=[ast.In() | ast.Eq()], comparators=[ast.Name(id=name)]) if name in names:
            return wanted
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="startswith"), args=[wanted]) if name in names:
            return wanted
    return None
