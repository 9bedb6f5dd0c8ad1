"""Loops that run their body once: `for _ in range(1)`, `for optimizer in (optimizer,)`."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import LOOP_NODES

_EACH = frozenset("enumerate zip iter list tuple reversed".split())


def repeats(stmt: ast.AST) -> bool:
    """Whether a statement is a loop that may run its body more than once, or not at all."""
    return isinstance(stmt, LOOP_NODES) and not (isinstance(stmt, ast.For) and of_one(stmt.iter))


def of_one(node: ast.expr) -> bool:
    """Whether going through something takes one turn, whatever the program does."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return len(node.elts) == 1 and not isinstance(node.elts[0], ast.Starred)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        return False
    if node.func.id == "range":
        return [a.value for a in node.args if isinstance(a, ast.Constant)] in ([1], [0, 1]) and len(node.args) < 3
    return node.func.id in _EACH and bool(node.args) and all(map(of_one, node.args))
