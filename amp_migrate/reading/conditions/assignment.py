"""Whether a name that the migration introduces is assigned wherever it is read: on every path through one body.

A path is told apart by the conditions on it: what `if args.fp16:` assigned is there under a later `if args.fp16:`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from amp_migrate.reading.conditions.conjunctions import conjuncts
from amp_migrate.reading.conditions.tests import NEGATED, OPERATORS
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module

EXITS = frozenset(("exit", "_exit", "quit", "error", "abort"))

Under = frozenset[str] | None  # the conditions each of which says that it is assigned; None where no path leads


ALWAYS = frozenset(("True",))


@dataclass
class Paths:
    """The paths through a body. `before`, `after`: the statements before and after which the name is assigned."""

    before: Collection[ast.stmt]
    after: Collection[ast.stmt]
    reads: Collection[ast.stmt]  # the statements that read it, in their own line or header
    unassigned: list[ast.stmt] = field(default_factory=list)  # those that may meet it unassigned

    def block(self, stmts: Iterable[ast.stmt], under: Under) -> Under:
        for stmt in stmts:
            if under is None:
                break
            if stmt in self.before:
                under = ALWAYS
            if stmt in self.reads and "True" not in under:
                self.unassigned.append(stmt)
            under = self._through(stmt, under)
            if stmt in self.after:
                under = ALWAYS
        return under

    def _through(self, stmt: ast.stmt, under: frozenset[str]) -> Under:
        if isinstance(stmt, (ast.Return, ast.Raise, ast.Break, ast.Continue)) or _leaves(stmt):
            return None
        if isinstance(stmt, ast.If):
            return self._choice(stmt, under)
        if isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
            self.block(stmt.body, under)  # it may run no turn at all
            return self.block(stmt.orelse, under)
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            return self.block(stmt.body, under)
        if isinstance(stmt, ast.Try):
            ends = [self.block(stmt.orelse, self.block(stmt.body, under))]
            ends += [self.block(handler.body, under) for handler in stmt.handlers]
            self.block(stmt.finalbody, under)
            return _joined(ends)
        if isinstance(stmt, ast.Match):
            return _joined([*(self.block(case.body, under) for case in stmt.cases), under])
        return under

    def _choice(self, stmt: ast.If, under: frozenset[str]) -> Under:
        asked = {ast.unparse(c) for c in conjuncts(stmt.test)}
        test, against = ast.unparse(stmt.test), _negation(stmt.test)
        if "__name__" in test:
            return self.block(stmt.body, under)
        one = self.block(stmt.body, ALWAYS if asked & under else under)
        two = self.block(stmt.orelse, ALWAYS if against in under else under)
        if one is None or two is None:
            # who comes by knows how the test came out
            left, known = (two, against) if one is None else (one, test)
            return left if left is None or known not in left else ALWAYS
        both = _joined([one, two])
        if both is None:
            return None
        said = (
            {test}
            if "True" in one and "True" not in two
            else {against}
            if "True" in two and "True" not in one
            else set()
        )
        return both | said


def _joined(ends: Iterable[Under]) -> Under:
    found = [end for end in ends if end is not None]
    if not found:
        return None
    partly = [end for end in found if "True" not in end]
    return frozenset.intersection(*partly) if partly else ALWAYS


def _negation(test: ast.expr) -> str:
    """The opposite of a condition, as the program would write it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.unparse(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return f"{ast.unparse(test.left)} {NEGATED[OPERATORS[type(test.ops[0])]]} {ast.unparse(test.comparators[0])}"
    return ast.unparse(ast.UnaryOp(ast.Not(), test))


def _leaves(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call) and called_name(stmt.value) in EXITS


def place_above(module: Module, body: list[ast.stmt], stmts: Iterable[ast.stmt]) -> ast.stmt:
    """The statement before which something must stand to be met before all of some statements: in the innermost block that
    holds them all, and out of every loop around them."""
    wanted = [[s, *(a for a in module.ancestors(s) if isinstance(a, ast.stmt))] for s in stmts]
    first = next(s for s in body if any(s in line for line in wanted))
    while True:
        if not all(first in line for line in wanted) or isinstance(first, (ast.For, ast.AsyncFor, ast.While)):
            return first
        for name in ("body", "orelse", "finalbody"):
            inner = [s for s in getattr(first, name, ()) if isinstance(s, ast.stmt)]
            if inner and all(any(s in line for s in inner) for line in wanted):
                first = next(s for s in inner if any(s in line for line in wanted))
                break
        else:
            return first
