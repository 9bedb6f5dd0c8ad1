"""What else is asked of the entry that a load reads: `has = "amp" in checkpoint`, `checkpoint["amp"] not in (None, "N/A")`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import names_stored, walk
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.state.keys import renamed


def ask_for_the_new(m: Migration, module: Module, stmt: ast.stmt, base: ast.expr, key: ast.Constant) -> bool:
    """Have what asks for the entry of a load ask for the one that is written now, or for either; whether a set-up does."""
    new, sets_up = renamed(m, module, key), False
    for where, asks, old, holder in asking(m, module, stmt, base, str(key.value)):
        edits = m.edit(where)
        if not m.options.checkpoint_compat:
            edits.replace(old, new)
        elif isinstance(asks, ast.Compare):
            no, either = ("not ", "and") if isinstance(asks.ops[0], ast.NotIn) else ("", "or")
            edits.replace(asks, (f"({new} {no}in {holder} {either} ", old, f" {no}in {holder})"))
        else:
            edits.replace(asks, (f"({holder}.get({new}) or {holder}.get(", old, "))"))
        for text in {where.source(asks), ast.unparse(asks)}:
            m.asked.setdefault(where, {})[text] = edits.text(asks)
        sets_up |= _decides(m, where, asks)
    return sets_up


def follow(m: Migration) -> None:
    """What was taken from a condition as text, to stand as a switch, asks what the condition asks now."""
    for module, asked in m.asked.items():
        m.edit(module).reword(asked)


def _decides(m: Migration, module: Module, asks: ast.expr) -> bool:
    """Whether a set-up is only reached where an entry is there: by a test around it, or by a variable that one asks."""
    tests = [a for a in (asks, *module.ancestors(asks)) if getattr(module.parents.get(a), "test", None) is a]
    stmt = module.statement(asks)
    names = names_stored(stmt)
    for init in m.unit.inits:
        around = [a for a in module.ancestors(init.stmt) if isinstance(a, ast.If)] if init.module is module else []
        if any(a.test in tests for a in around):
            return True
        if any(isinstance(n, ast.Name) and n.id in names for a in around for n in walk(a.test)):
            return True
    return False


def asking(
    m: Migration, module: Module, stmt: ast.stmt, base: ast.expr, key: str
) -> Iterator[tuple[Module, ast.expr, ast.Constant, str]]:
    """What tests an entry of what a load reads, or whether it is there: the key there, and how it names the checkpoint."""
    scope, held = module.scope_of(stmt), m.project.origins(m.project.sources(module, base))
    for where in m.unit.modules:
        for node in where.nodes:
            if not isinstance(node, ast.Constant) or node.value != key:
                continue
            asks, holder = _of(where, node)
            if asks is None or holder is None:
                continue
            here = where.scope_of(node) is scope and where.source(holder) == module.source(base)
            if here or not held.isdisjoint(m.project.sources(where, holder)):
                yield where, asks, node, where.source(holder)


def _of(module: Module, key: ast.Constant) -> tuple[ast.expr | None, ast.expr | None]:
    """The expression that asks for an entry, and the mapping of which it asks."""
    parent = module.parents.get(key)
    if isinstance(parent, ast.Compare) and parent.left is key and isinstance(parent.ops[0], (ast.In, ast.NotIn)):
        return parent, _mapping(parent.comparators[0])
    if isinstance(parent, ast.Subscript) and _tested(module, parent):
        return parent, parent.value
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "get":
        return (parent, parent.func.value) if _tested(module, parent) else (None, None)
    return None, None


def _mapping(node: ast.expr) -> ast.expr:
    """What `checkpoint.keys()` gives the keys of."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
        return node.func.value
    return node


def _tested(module: Module, read: ast.expr) -> bool:
    parent = module.parents.get(read)
    return isinstance(parent, (ast.Compare, ast.BoolOp, ast.UnaryOp)) or getattr(parent, "test", None) is read
