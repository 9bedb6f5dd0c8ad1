"""What else is asked of the entry that a load reads: `has = "amp" in checkpoint`, `checkpoint["amp"] not in (None, "N/A")`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.state.keys import renamed


def ask_for_the_new(m: Migration, module: Module, stmt: ast.stmt, base: str, key: ast.Constant) -> None:
    """Have what asks for the entry beside a load ask for the one that is written now, or for either."""
    edits, new = m.edit(module), renamed(m, module, key)
    for asks, old in _asked(module, stmt, base, str(key.value)):
        if not m.options.checkpoint_compat:
            edits.replace(old, new)
        elif isinstance(asks, ast.Compare):
            no, either = ("not ", "and") if isinstance(asks.ops[0], ast.NotIn) else ("", "or")
            edits.replace(asks, (f"({new} {no}in {base} {either} ", old, f" {no}in {base})"))
        else:
            edits.replace(asks, (f"({base}.get({new}) or {base}.get(", old, "))"))


def _asked(module: Module, stmt: ast.stmt, base: str, key: str) -> Iterator[tuple[ast.expr, ast.Constant]]:
    """What tests an entry, or whether it is there, in the function of a load, and the key there."""
    for node in (n for s in module.scope_of(stmt).body for n in walk(s)):
        parent = module.parents.get(node)
        if not isinstance(node, ast.Constant) or node.value != key:
            continue
        if isinstance(parent, ast.Compare):
            if isinstance(parent.ops[0], (ast.In, ast.NotIn)) and _is(module, parent.comparators[0], base):
                yield parent, node
        elif isinstance(parent, ast.Subscript) and _is(module, parent.value, base) and _tested(module, parent):
            yield parent, node
        elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "get":
            if _is(module, parent.func.value, base) and _tested(module, parent):
                yield parent, node


def _is(module: Module, holder: ast.expr, base: str) -> bool:
    return module.source(holder) in (base, f"{base}.keys()")


def _tested(module: Module, read: ast.expr) -> bool:
    parent = module.parents.get(read)
    return isinstance(parent, (ast.Compare, ast.BoolOp, ast.UnaryOp)) or getattr(parent, "test", None) is read
