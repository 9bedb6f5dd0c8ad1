"""Opt levels that are made of a number, `opt_level="O%i" % params.amp`: which of them a run may still ask for."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

from amp_migrate.reading.conditions.conjunctions import conjuncts
from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.module import Module

NUMBERS = range(4)
COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def number_of(level: ast.expr) -> ast.expr | None:
    """The number that a level is made of; None where it is not made so."""
    if (
        not isinstance(level, ast.BinOp)
        or not isinstance(level.op, ast.Mod)
        or not isinstance(level.left, ast.Constant)
    ):
        return None
    given = level.right.elts if isinstance(level.right, ast.Tuple) else [level.right]
    made = level.left.value in ("O%i", "O%d") and len(given) == 1 and isinstance(given[0], (ast.Name, ast.Attribute))
    return given[0] if made else None


def allowed(module: Module, call: ast.Call, level: ast.expr) -> frozenset[str]:
    """The levels that the assertions above a call in its function, and the tests around it, leave."""
    number = number_of(level)
    asked = list(_asked(module, call)) if number is not None else []
    text = ast.unparse(number) if number is not None else ""
    return frozenset(f"O{n}" for n in NUMBERS if all(_may_hold(test, text, n) for test in asked))


def _asked(module: Module, call: ast.Call) -> Iterator[ast.expr]:
    scope = module.scope_of(call)
    for branch in branches_around(module, call, module.scopes):
        if branch.holds:
            yield from conjuncts(branch.test.test)
    for stmt in scope.node.body:
        if isinstance(stmt, ast.Assert) and stmt.lineno < call.lineno:
            yield from conjuncts(stmt.test)


def _may_hold(test: ast.expr, text: str, number: int) -> bool:
    """Whether a test may hold where what it compares is a number; true of what it says nothing of."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or ast.unparse(test.left) != text:
        return True
    other = getattr(test.comparators[0], "value", None)
    compared = COMPARED.get(type(test.ops[0]))
    return compared is None or not isinstance(other, int) or compared(number, other)
