"""The conditions that a test joins, as code that can stand elsewhere, without what only asks for Apex."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.conditions.tests import NEGATED, OPERATORS, Availability
from amp_migrate.reading.program.logic import bracketed
from amp_migrate.reading.program.module import Module


def conjuncts(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of `a and b`."""
    return _joined_by(ast.And, test)


def disjuncts(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of `a or b`."""
    return _joined_by(ast.Or, test)


def _joined_by(kind: type[ast.boolop], test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, kind):
        for value in test.values:
            yield from _joined_by(kind, value)
    else:
        yield test


def conjunction(module: Module, available: Availability, test: ast.expr, *, negate: bool = False) -> list[str] | None:
    """A test, or its negation, as source texts to be joined by `and`, without what asks for Apex; None if undecided."""
    value = available.value(test)
    if value is not None:
        return [] if value is not negate else None
    if negate:
        return _negated(module, available, test)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        parts: list[str] = []
        for operand in test.values:
            more = conjunction(module, available, operand)
            if more is None:
                return None
            parts += more
        return parts
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.BoolOp):
        return conjunction(module, available, test.operand, negate=True)
    if isinstance(test, ast.BoolOp):
        kept = [v for v in test.values if available.value(v) is None]
        if len(kept) < len(test.values):
            return (
                conjunction(module, available, kept[0])
                if len(kept) == 1
                else ["(" + " or ".join(_said(module, v) for v in kept) + ")"]
            )
        return [f"({_said(module, test)})"]
    return [bracketed(test, _said(module, test))]


def _negated(module: Module, available: Availability, test: ast.expr) -> list[str] | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return conjunction(module, available, test.operand)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        parts: list[str] = []
        for operand in test.values:
            more = conjunction(module, available, operand, negate=True)
            if more is None:
                return None
            parts += more
        return parts
    if isinstance(test, ast.BoolOp):
        kept = [v for v in test.values if available.value(v) is None]
        if len(kept) == 1:
            return conjunction(module, available, kept[0], negate=True)
        return ["not (" + " and ".join(_said(module, v) for v in kept) + ")"]
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        flipped = NEGATED[OPERATORS[type(test.ops[0])]]
        return [f"{_operand(module, test.left)} {flipped} {_operand(module, test.comparators[0])}"]
    return [f"not {bracketed(test, _said(module, test))}"]


def _operand(module: Module, node: ast.expr) -> str:
    """The text of an operand: `n := ask()` is one in parentheses only."""
    text = _said(module, node)
    return f"({text})" if isinstance(node, ast.NamedExpr) else text


def _said(module: Module, node: ast.expr) -> str:
    """An expression as the file has it, on one line."""
    text = module.source(node)
    return text if "\n" not in text and "\r" not in text else module.written(node)
