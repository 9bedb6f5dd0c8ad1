"""Arguments unpacked from a list: `initialize(*things)`, where what `things` holds is written out in its scope."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from amp_migrate.reading.program.given_values import alternatives
from amp_migrate.reading.program.module import LOOP_NODES, Module
from amp_migrate.reading.program.spelled_out import only_looks, other_uses
from amp_migrate.reading.values.reaching import reaching


@dataclass(frozen=True)
class Listed:
    """What `*items` holds: the items of the longest list that it may be, whether it is always that one, and the statements
    that make it."""

    name: ast.Name
    items: list[ast.expr]
    always: bool
    made: list[ast.stmt]


def listed(module: Module, node: ast.expr) -> Listed | None:
    """What a variable behind `*` holds that is given lists written out, of which one begins like another, and one item more
    at most on the way (`items.append(optimizer)`, `items += [optimizer]`); None where that cannot be told."""
    if not isinstance(node, ast.Name) or module.scope_of(node).lookup(node.id) is not module.scope_of(node):
        return None
    lists: list[list[ast.expr]] = []
    made: list[ast.stmt] = []
    more: list[tuple[ast.stmt, list[ast.expr]]] = []
    for binding in reaching(module.scope_of(node), node):
        stmt = module.statement(binding)
        if isinstance(stmt, ast.AugAssign) and stmt.lineno < node.lineno and (added := _items(stmt.value)) is not None:
            more.append((stmt, added))
            continue
        if not isinstance(stmt, ast.Assign) or stmt.targets != [binding]:
            return None
        for value in alternatives(stmt.value):
            if (items := _items(value)) is None:
                return None
            lists.append(items)
        made.append(stmt)
    loops = [a for a in module.ancestors(node) if isinstance(a, LOOP_NODES)]
    if not lists or not all(loop in module.ancestors(stmt) for loop in loops for stmt in made):
        return None
    for use in other_uses(module, node):
        if use.lineno > node.lineno or only_looks(module, use):
            continue
        if (added := _appended(module, use)) is None:
            return None
        more.append((module.statement(use), added))
    longest, shortest = max(lists, key=len), min(lists, key=len)
    begins = all(ast.dump(a) == ast.dump(b) for items in lists for a, b in zip(items, longest, strict=False))
    if not begins or not shortest or (more and (len(more) > 1 or len(longest) > len(shortest))):
        return None
    added = [item for _, items in more for item in items]
    block = module.block(made[0])
    always = len(longest) == len(shortest) and all(len(made) == 1 and module.block(s) is block for s, _ in more)
    items = [*longest, *added]
    return Listed(node, items, always, [*made, *(s for s, _ in more)]) if always or len(items) <= 2 else None


def _items(node: ast.expr) -> list[ast.expr] | None:
    """The items of a list or tuple that is written out."""
    if not isinstance(node, (ast.List, ast.Tuple)) or any(isinstance(e, ast.Starred) for e in node.elts):
        return None
    return node.elts


def _appended(module: Module, use: ast.Name) -> list[ast.expr] | None:
    """What a statement puts at the end of a list: `items.append(x)`, `items.extend([x])`; None for anything else."""
    method = module.parents.get(use)
    call = module.parents.get(method) if isinstance(method, ast.Attribute) else None
    if not isinstance(call, ast.Call) or not isinstance(method, ast.Attribute) or call.func is not method:
        return None
    if len(call.args) != 1 or not isinstance(module.parents.get(call), ast.Expr):
        return None
    given = call.args[0]
    return [given] if method.attr == "append" else _items(given) if method.attr == "extend" else None
