"""What a test comes to, put together from what is known of its parts."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

from amp_migrate.reading.program.tree import walk

COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def truth(test: ast.expr, told: Callable[[ast.expr], bool | None]) -> bool | None:
    """What a test comes to; None where that is open. `told` says so of the whole or of a part, as far as it can."""
    known = told(test)
    if known is not None:
        return known
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = truth(test.operand, told)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = [truth(value, told) for value in test.values]
        decisive = isinstance(test.op, ast.Or)
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    return None


def implied(test: ast.expr, came: bool) -> Iterator[tuple[ast.expr, bool]]:
    """What the parts of a test came to where it came out so: of `a and not b` that holds, `a` did and `b` did not."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from implied(test.operand, not came)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is came:
        for part in test.values:
            yield from implied(part, came)
    else:
        yield test, came


def is_asked(parent: ast.AST | None, node: ast.expr) -> bool:
    """Whether an expression is a test, or a part of one."""
    if isinstance(parent, (ast.If, ast.IfExp, ast.While)):
        return parent.test is node
    return isinstance(parent, ast.BoolOp) or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not))


def bracketed(node: ast.expr, text: str) -> str:
    """The text of an expression as it can be joined to others by `and`."""
    return f"({text})" if isinstance(node, LOOSE) else text


def in_parentheses(text: str) -> bool:
    """Whether parentheses stand around all of an expression: `(a or b)`, not `(a or b) and (c or d)`."""
    tree = ast.parse(text, mode="eval").body
    inside = tree.col_offset > 0 and tree.end_col_offset == len(text.encode()) - 1
    return text[:1] == "(" and text[-1:] == ")" and "\n" not in text and inside


def unbracketed(text: str) -> str:
    """The text of an expression without parentheses around all of it."""
    return text[1:-1] if in_parentheses(text) else text


LOOSE = (ast.IfExp, ast.Lambda, ast.NamedExpr)  # expressions that `and`, `or` and `not` take in parentheses only

# Functions of Python's own that only look at an object.
LOOKING = frozenset("getattr hasattr id isinstance len print str type".split())

# Functions that only tell something, and methods of mappings and texts that only give something.
_TELLING = frozenset(
    "hasattr getattr isinstance len is_available get_rank is_initialized bool dict float int str abs min max round".split()
)
_GIVING = frozenset("get keys lower upper strip startswith endswith find".split())


def pure(expr: ast.expr) -> bool:
    """Whether computing an expression can be left out: it calls nothing but a few harmless builtins and methods."""
    for node in walk(expr):
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
            return False
        if isinstance(node, ast.Call):
            giving = isinstance(node.func, ast.Attribute) and node.func.attr in _GIVING
            if not giving and ast.unparse(node.func).rpartition(".")[2] not in _TELLING:
                return False
    return True
