"""Lambdas that are kept, `score = lambda x: net(x).max()`: what stands in one runs where that is called, in no region here."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module


def in_kept_lambda(module: Module, node: ast.AST) -> bool:
    """Whether a node stands in one; not in what a call is handed, to run it there."""
    for around in module.ancestors(node):
        if isinstance(around, ast.Lambda):
            return not isinstance(module.parents.get(around), (ast.Call, ast.keyword))
        if isinstance(around, ast.stmt):
            return False
    return False
