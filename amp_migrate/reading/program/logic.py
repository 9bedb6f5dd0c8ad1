"""What a test comes to, put together from what is known of its parts."""

from __future__ import annotations

import ast
from collections.abc import Callable


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
