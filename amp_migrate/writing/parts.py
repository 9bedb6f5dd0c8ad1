"""What the text of single expressions and headers says to the writer: where strings span lines, which tests may go."""

from __future__ import annotations

import ast
from typing import cast


def string_lines(text: str) -> set[int]:
    """Indices of lines that start inside a multi-line string."""
    try:
        tree = ast.parse(f"({text})")
    except SyntaxError:
        try:
            tree = ast.parse(text)
        except SyntaxError:
            return set()
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and getattr(node, "end_lineno", 0) != getattr(
            node, "lineno", 0
        ):
            value = getattr(node, "value", "")
            if isinstance(node, ast.JoinedStr) or isinstance(value, (str, bytes)):
                inside.update(range(node.lineno, cast(int, node.end_lineno)))
    return inside


def pure(test: ast.expr) -> bool:
    """A test whose evaluation can be dropped: it calls nothing but a few harmless builtins."""
    for node in ast.walk(test):
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
            return False
        if isinstance(node, ast.Call) and not ast.unparse(node.func).endswith(
            ("hasattr", "getattr", "isinstance", "len", "is_available", "get_rank", "is_initialized")
        ):
            return False
    return True


def negate(test: ast.expr, text: str) -> str:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.unparse(test.operand)
    simple = isinstance(test, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Compare))
    return f"not {text}" if simple else f"not ({text})"


def plain_with(stmt: ast.With) -> bool:
    return all("no_grad" in ast.unparse(item) or "autocast" in ast.unparse(item) for item in stmt.items)
