"""A class of Apex's that a program only knows by name, as a key or in a registry, is still known.

`register(apex.normalization.FusedLayerNorm)`, `COSTS = {FusedLayerNorm: flops}`: such a program makes no such layer itself,
it is given models that hold them. Told where the migration put another class there, or took the entry out. Not asked of
classes that the program makes, derives from or hands on: these are others afterwards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review, mentions
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP133: see `without_apex.py`

Mention = tuple[Module, ast.expr, str]


def check(review: Review) -> Iterable[Doubt]:
    keys = [m for c in review.changes.values() for m in _mentions(review, c.before) if _is_key(c.before, m[1])]
    if not keys:
        return
    made = {
        name
        for module in review.before.using({name for _, _, name in keys})
        for _, node, name in _mentions(review, module)
        if not _is_key(module, node) and not module.only_asked(node)
    }
    told: set[tuple[str, ast.stmt | None]] = set()
    for module, node, name in keys:
        change = review.changes[module.path]
        stmt = module.statement(node)
        new = change.back.get(stmt)
        if name in made or new in change.same or (module.path, _block(module, stmt)) in told:
            continue
        told.add((module.path, _block(module, stmt)))
        text = syntax.text(node)
        where = "is out of it now" if new is None else "gave its place to torch's class"
        message = (
            f"{text} was only entered here, for models that hold it, and {where}: those that still do are not recognized "
            "any more"
        )
        yield Doubt(module.path, node.lineno, "AMP133", name.partition(".")[2], message, "review")


def _mentions(review: Review, module: Module) -> Iterable[Mention]:
    """Where a file names a class of Apex's."""
    for node, name in mentions(review.before, module, "apex."):
        if name.rpartition(".")[2][:1].isupper():
            yield module, node, name


def _is_key(module: Module, node: ast.expr) -> bool:
    """Whether a class is a key of a dictionary, or what a call or decorator registers."""
    parent = module.parents.get(node)
    if isinstance(parent, (ast.Tuple, ast.List, ast.Set)):
        node, parent = parent, module.parents.get(parent)
    if isinstance(parent, ast.Dict):
        return any(node is k for k in parent.keys)
    if isinstance(parent, ast.Subscript):
        return parent.slice is node and isinstance(parent.ctx, ast.Store)
    if isinstance(parent, ast.Call) and any(node is a for a in syntax.given(parent)):
        called = syntax.last(parent.func)
        return "register" in called.lower().split("_")
    return False


def _block(module: Module, stmt: ast.stmt) -> ast.stmt | None:
    """The statement around one, so that entries that stand together are told once."""
    parent = module.parents.get(stmt)
    return parent if isinstance(parent, ast.stmt) else None
