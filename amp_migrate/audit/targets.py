"""What statements assign: each single target with the value it is taken from, and which item of it."""

from __future__ import annotations

import ast

from amp_migrate.audit.module import Module

Path = tuple["int | str | None", ...]  # which item of a tuple, list or dict is meant; None: any


_ASSIGNING = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr),
    *(ast.For, ast.AsyncFor, ast.comprehension, ast.With, ast.AsyncWith),
)


def targets(node: ast.AST) -> list[tuple[ast.expr, ast.expr | None, Path]]:
    """The targets that one node assigns, each with the value it is taken from and the item of it."""
    if isinstance(node, ast.Assign):
        return [(t, node.value, ()) for t in node.targets]
    if isinstance(node, ast.AnnAssign):
        return [(node.target, node.value, ())] if node.value is not None else []
    if isinstance(node, ast.AugAssign):
        return [(node.target, node.value, ())]
    if isinstance(node, ast.NamedExpr):
        return [(node.target, node.value, ())]
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        return _loop_targets(node.target, node.iter)
    if isinstance(node, ast.With | ast.AsyncWith):
        return [(i.optional_vars, i.context_expr, ()) for i in node.items if i.optional_vars is not None]
    return []


def _loop_targets(target: ast.expr, iterable: ast.expr) -> list[tuple[ast.expr, ast.expr | None, Path]]:
    """`for a, b in zip(x, y)` and `enumerate(x)` hand on items of their arguments."""
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and isinstance(target, ast.Tuple):
        if iterable.func.id == "zip" and len(iterable.args) == len(target.elts):
            return [(t, v, (None,)) for t, v in zip(target.elts, iterable.args, strict=True)]
        if iterable.func.id == "enumerate" and iterable.args and len(target.elts) == 2:
            return [(target.elts[0], None, ()), *_loop_targets(target.elts[1], iterable.args[0])]
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Attribute):
        if iterable.func.attr == "items" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            return [(target.elts[0], None, ()), (target.elts[1], iterable.func.value, (None,))]
        if iterable.func.attr == "values":
            return [(target, iterable.func.value, (None,))]
    return [(target, iterable, (None,))]


def single(target: ast.expr) -> list[tuple[ast.expr, Path]]:
    """The single targets in a target, each with the item that it takes."""
    if isinstance(target, ast.Tuple | ast.List):
        starred = any(isinstance(e, ast.Starred) for e in target.elts)
        return [
            (found, (None if starred else i, *inner)) for i, e in enumerate(target.elts) for found, inner in single(e)
        ]
    if isinstance(target, ast.Starred):
        return single(target.value)
    return [(target, ())]


def put_later(
    module: Module,
) -> tuple[dict[str, list[ast.Call]], dict[str, list[tuple[ast.Subscript, ast.expr, Path]]]]:
    """What is put into containers later, by the name of the container: `x.append(v)`, `x["k"] = v`."""
    known: tuple[dict[str, list[ast.Call]], dict[str, list[tuple[ast.Subscript, ast.expr, Path]]]] | None
    known = module.__dict__.get("_put")
    if known is None:
        calls: dict[str, list[ast.Call]] = {}
        items: dict[str, list[tuple[ast.Subscript, ast.expr, Path]]] = {}
        for call in module.calls():
            f = call.func
            if isinstance(f, ast.Attribute) and f.attr in ("append", "add", "insert") and call.args:
                if isinstance(f.value, ast.Name):
                    calls.setdefault(f.value.id, []).append(call)
        for target, value, item in assignments(module):
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and value is not None:
                items.setdefault(target.value.id, []).append((target, value, item))
        known = module.__dict__["_put"] = calls, items
    return known


def assignments(module: Module) -> list[tuple[ast.expr, ast.expr | None, Path]]:
    """Every single target in a module with the value it gets and the item of it."""
    known: list[tuple[ast.expr, ast.expr | None, Path]] | None = module.__dict__.get("_all_assignments")
    if known is None:
        known = []
        for node in module.assigning():
            if not isinstance(node, _ASSIGNING):
                continue
            for target, value, item in targets(node):
                known += [(found, value, (*item, *inner)) for found, inner in single(target)]
        module.__dict__["_all_assignments"] = known
    return known


def attributes(module: Module) -> dict[str, list[tuple[ast.Attribute, ast.expr | None, Path]]]:
    """The attributes that a module assigns, by name."""
    known: dict[str, list[tuple[ast.Attribute, ast.expr | None, Path]]] | None = module.__dict__.get("_attributes")
    if known is None:
        known = module.__dict__["_attributes"] = {}
        for target, value, path in assignments(module):
            if isinstance(target, ast.Attribute):
                known.setdefault(target.attr, []).append((target, value, path))
    return known
