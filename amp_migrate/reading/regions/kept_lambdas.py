"""Lambdas that are kept, `score = lambda x: net(x).max()`: what stands in one runs where that is called, in no region here."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module


def in_kept_lambda(module: Module, node: ast.AST) -> bool:
    """Whether a node stands in one; not in what a call is handed, to run it there."""
    inner = next((a for a in module.around(node) if isinstance(a, ast.Lambda)), None)
    return inner is not None and not isinstance(module.parents.get(inner), (ast.Call, ast.keyword))
