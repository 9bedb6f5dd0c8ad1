"""Statements that add to gradients, themselves or in the functions they call: weight decay or sparsity by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import reached, walk

ADDING = frozenset("add_ sub_ addcmul_ addcdiv_ copy_".split())


def adds_to_gradients(project: Project, stmt: ast.stmt) -> bool:
    """Whether a statement adds to gradients: how often it runs decides how much it adds."""

    def run(node: ast.stmt) -> list[ast.stmt]:
        called = (f for n in walk(node) if isinstance(n, ast.Call) for f in project.resolved.get(n, ()))
        return [s for f in called for s in f.node.body]

    return any(_adds(n) for node in reached([stmt], run) for n in walk(node))


def _adds(node: ast.AST) -> bool:
    if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
        return _gradient([node.target])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
        return _gradient([node.func.value])
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        return _gradient(node.targets) and isinstance(node.value.op, (ast.Add, ast.Sub))
    return False


def _gradient(values: Iterable[ast.expr]) -> bool:
    """Whether one of some expressions is a gradient: `p.grad`, `p.grad.data`."""
    for value in values:
        current: ast.AST = value
        while isinstance(current, (ast.Attribute, ast.Subscript)):
            if isinstance(current, ast.Attribute) and current.attr == "grad":
                return True
            current = current.value
    return False
