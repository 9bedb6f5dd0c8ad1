"""Which parameters lose their gradients once a model is wrapped: an encoder that is frozen for some epochs."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk


def frozen_after(module: Module, stmt: ast.stmt, model: str) -> ast.AST | None:
    """Where a part of a model is frozen below a statement of the same function: `for p in model.module.encoder.parameters():
    p.requires_grad = False`. A model that is frozen whole is not trained."""
    scope = module.scope_of(stmt)
    for node in module.nodes:
        if module.scope_of(node) is not scope or getattr(node, "lineno", 0) <= stmt.lineno:
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
            if any(_false(v) for v in (*node.args, *(k.value for k in node.keywords))):
                if _is_part(ast.unparse(node.func.value), model):
                    return node
        if isinstance(node, ast.For) and any(_freezes(n) for n in walk(node)):
            iterated = node.iter.func if isinstance(node.iter, ast.Call) else node.iter
            if isinstance(iterated, ast.Attribute) and iterated.attr in ("parameters", "named_parameters"):
                holder = ast.unparse(iterated.value)
                if _is_part(holder, model) or (holder in (model, f"{model}.module") and _chooses(node)):
                    return node
        if isinstance(node, ast.Assign) and _freezes(node):  # one parameter: `model.module.gate.requires_grad = False`
            if any(_is_part(ast.unparse(t.value), model) for t in node.targets if isinstance(t, ast.Attribute)):
                return node
    return None


def _is_part(text: str, model: str) -> bool:
    return text.startswith(f"{model}.") and text != f"{model}.module"


def _chooses(loop: ast.For) -> bool:
    return any(isinstance(n, ast.If) and any(_freezes(s) for s in walk(n)) for n in loop.body)


def _freezes(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign) or not _false(node.value):
        return False
    return any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets)


def _false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False
