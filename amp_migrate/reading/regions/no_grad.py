"""Where no gradients are made: `with torch.no_grad():`, and functions that are decorated so."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import called_name, dotted
from amp_migrate.reading.program.module import FUNCTION_NODES, WITH_NODES, Module

NO_GRAD = ("no_grad", "inference_mode")


def opens(stmt: ast.With | ast.AsyncWith, *names: str) -> bool:
    """Whether a with statement opens a context that a call by one of some names makes."""
    made = (item.context_expr for item in stmt.items)
    return any(isinstance(c, ast.Call) and called_name(c) in names for c in made)


def switches(stmt: ast.With | ast.AsyncWith) -> bool:
    """Whether a with statement says whether gradients are made, always or where a test says so:
    `with torch.no_grad() if evaluating else nullcontext():`."""
    made = [item.context_expr for item in stmt.items]
    made += [side for c in made if isinstance(c, ast.IfExp) for side in (c.body, c.orelse)]
    return any(isinstance(c, ast.Call) and called_name(c) in (*NO_GRAD, "set_grad_enabled") for c in made)


def under_no_grad(module: Module, node: ast.AST) -> bool:
    """Whether a node stands in `with torch.no_grad():` or in a function that is decorated so."""
    found: list[ast.expr] = []
    for around in module.ancestors(node):
        if isinstance(around, WITH_NODES):
            found += [item.context_expr for item in around.items]
        elif isinstance(around, FUNCTION_NODES):
            found += around.decorator_list
            break
    calls = (f.func if isinstance(f, ast.Call) else f for f in found)
    return any((dotted(f) or "").rpartition(".")[2] in NO_GRAD for f in calls)
