"""Which bindings of a variable a use of it may read: those that no other one comes after for sure."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, WITH_NODES, Module, Scope
from amp_migrate.reading.values.bound import makes


def reaching(scope: Scope, use: ast.Name) -> Sequence[ast.AST]:
    """The bindings of a variable that a use in its own scope may read, in source order; those in another function, which
    runs whenever, are among them."""
    return reaching_at(scope, use, use.id)


def reaching_at(scope: Scope, use: ast.expr | ast.stmt, name: str) -> Sequence[ast.AST]:
    """Those that what runs at some expression, or begins at some statement, may read under a name."""
    module, bindings = scope.module, scope.bindings.get(name, ())
    if (
        len(bindings) < 2
        or module.scope_of(use) is not scope
        or any(isinstance(a, ast.Lambda) for a in module.around(use))
    ):
        return bindings
    stands = {b: module.statement(b) for b in bindings if isinstance(b, ast.arg) or module.scope_of(b) is scope}
    own = module.statement(use)
    around = [own, *module.ancestors(own)]
    before = sorted((s for s in set(stands.values()) if s.lineno < use.lineno and s is not own), key=lambda s: s.lineno)
    makers = {s for s in stands.values() if _gives(s)}
    sure = (whole for s in reversed(before) if (whole := _surely(module, s, around, makers)) is not None)
    last = next(sure, None)
    loops = [a for a in around if isinstance(a, LOOP_NODES) and (last is None or a not in module.ancestors(last))]

    def reaches(stmt: ast.stmt) -> bool:
        if stmt in before:
            return (last is None or stmt.lineno >= last.lineno) and not _replaced(module, stmt, before)
        return any(a in loops for a in module.ancestors(stmt))

    return [b for b in bindings if b not in stands or reaches(stands[b])]


def _gives(stmt: ast.stmt) -> bool:
    return isinstance(stmt, (ast.Assign, ast.AnnAssign, *WITH_NODES)) and getattr(stmt, "value", stmt) is not None


def _surely(module: Module, stmt: ast.stmt, around: list[ast.AST], makers: set[ast.stmt]) -> ast.stmt | None:
    """The statement that ran, and bound a name anew, before what stands in the statements `around`: the one that is asked for, or
    an `if` which holds it and does so in each of its branches."""
    if not _gives(stmt):
        return None
    found, parent = stmt, module.parents[stmt]
    while isinstance(parent, WITH_NODES) or (isinstance(parent, (ast.If, ast.Try)) and makes(parent, makers)):
        if parent in around:
            break
        found = found if isinstance(parent, WITH_NODES) else parent
        stmt, parent = parent, module.parents[parent]
    if parent not in around and not isinstance(parent, (*FUNCTION_NODES, ast.Module)):
        return None
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and stmt in block:
            return found if any(s in around for s in block) else None
    return None


def _replaced(module: Module, stmt: ast.stmt, others: Sequence[ast.stmt]) -> bool:
    """Whether one of some statements comes right after another in its block, with nothing between that may jump away: before
    either is left, the one has given the name anew."""
    for block in (getattr(module.parents[stmt], name, None) for name in ("body", "orelse", "finalbody")):
        if isinstance(block, list) and stmt in block:
            after = block[block.index(stmt) + 1 :]
            simple = itertools.takewhile(lambda s: isinstance(s, (ast.Assign, ast.Expr)), after)
            return any(s in others for s in simple if isinstance(s, ast.Assign))
    return False
