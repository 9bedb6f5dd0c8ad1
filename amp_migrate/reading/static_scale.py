"""The loss scale that `amp.initialize` was given, as far as its text tells."""

from __future__ import annotations

import ast

from amp_migrate.reading.flags import single_assignment
from amp_migrate.reading.unit import Init


def static_scale(init: Init) -> float | ast.expr | None:
    """The loss scale of a unit: a number that never changes, None for dynamic, or the expression that decides."""
    node = init.arguments.get("loss_scale")
    if isinstance(node, ast.Name):
        value = single_assignment(init.module, node)
        node = value if isinstance(value, (ast.Constant, ast.BinOp)) else node
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return 1.0 if init.literal("opt_level") == "O3" else None
    known = number(node)
    if known is not None:
        return known
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return init.arguments["loss_scale"]
    return None if value == "dynamic" else float(value)


def number(node: ast.expr) -> float | None:
    """The value of a number, or of arithmetic on numbers such as `2.**16`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value)
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Pow, ast.Mult, ast.LShift)):
        return None
    left, right = number(node.left), number(node.right)
    if left is None or right is None or right > 64:
        return None
    if isinstance(node.op, ast.Mult):
        return left * right
    return left * 2.0**right if isinstance(node.op, ast.LShift) else float(left**right)
