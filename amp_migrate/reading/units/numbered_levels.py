"""Opt levels that are made of a number, `opt_level="O%i" % params.amp`: which of them a run may still ask for."""

from __future__ import annotations

import ast

from amp_migrate.reading.conditions.assertions import ended_above
from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.logic import COMPARED, implied
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project

NUMBERS = range(4)


def number_of(level: ast.expr) -> ast.expr | None:
    """The number that a level is made of; None where it is not made so."""
    if not isinstance(level, ast.BinOp) or not isinstance(level.op, ast.Mod):
        return None
    given = level.right.elts if isinstance(level.right, ast.Tuple) else [level.right]
    text = level.left.value if isinstance(level.left, ast.Constant) else None
    made = text in ("O%i", "O%d") and len(given) == 1 and isinstance(given[0], (ast.Name, ast.Attribute))
    return given[0] if made else None


def allowed(project: Project, module: Module, call: ast.Call, level: ast.expr) -> frozenset[str]:
    """The levels that the tests around a call leave, and those by which other runs are ended above it."""
    number = number_of(level)
    if number is None:
        return frozenset(f"O{n}" for n in NUMBERS)
    tests = [(b.test.test, b.holds) for b in branches_around(module, call, module.scopes)]
    tests += [(above.test, above.holds) for above in ended_above(project, module, call)]
    asked = [part for test, came in tests for part in implied(test, came)]
    text = ast.unparse(number)
    return frozenset(f"O{n}" for n in NUMBERS if all(_may_come(test, came, text, n) for test, came in asked))


def _may_come(test: ast.expr, came: bool, text: str, number: int) -> bool:
    """Whether a test may come out so where what it compares is a number; true of what it says nothing of."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or ast.unparse(test.left) != text:
        return True
    other = getattr(test.comparators[0], "value", None)
    compared = COMPARED.get(type(test.ops[0]))
    return compared is None or not isinstance(other, int) or compared(number, other) is came
