"""Texts that are put together from a number: opt levels, most of all."""

from __future__ import annotations

import ast

from amp_migrate.audit.program import syntax


def in_format(text: ast.expr, whole: ast.expr) -> tuple[ast.expr, ast.Constant] | None:
    """What a number is put behind letters from, and the number it must be for the text to be the whole:
    `"O%i" % level == "O0"` where `level == 0`."""
    value = whole.value if isinstance(whole, ast.Constant) else None
    parts: list[ast.expr] = []
    if isinstance(text, ast.JoinedStr) and len(text.values) == 2 and isinstance(text.values[1], ast.FormattedValue):
        if text.values[1].format_spec is None:
            parts = [text.values[0], text.values[1].value]
    elif isinstance(text, ast.BinOp) and isinstance(text.left, ast.Constant):
        if isinstance(text.op, ast.Mod) and text.left.value in ("O%i", "O%d", "O%s"):
            only = text.right.elts if isinstance(text.right, ast.Tuple) else [text.right]
            parts = [ast.Constant("O"), *only]
        elif (
            isinstance(text.op, ast.Add) and isinstance(text.right, ast.Call) and syntax.text(text.right.func) == "str"
        ):
            parts = [text.left, *text.right.args]
    elif isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute) and text.func.attr == "format":
        if isinstance(text.func.value, ast.Constant) and text.func.value.value == "O{}":
            parts = [ast.Constant("O"), *text.args]
    if len(parts) != 2 or not isinstance(value, str) or not isinstance(parts[0], ast.Constant):
        return None
    head = parts[0].value
    if not isinstance(head, str) or not head or not value.startswith(head) or not value[len(head) :].isdecimal():
        return None
    return parts[1], ast.Constant(int(value[len(head) :]))


def start_of_method(chosen: ast.expr) -> str | None:
    """What the names begin with of the methods of `self` one of which an expression chooses: `getattr(self, "on_" + event)`,
    `eval("self.on_{}".format(event))`; None where it chooses none."""
    if not isinstance(chosen, ast.Call) or not isinstance(chosen.func, ast.Name):
        return None
    if chosen.func.id == "getattr" and len(chosen.args) > 1 and syntax.text(chosen.args[0]) == "self":
        return None if isinstance(chosen.args[1], ast.Constant) else _start(chosen.args[1])
    if chosen.func.id == "eval" and len(chosen.args) == 1:
        start = _start(chosen.args[0])
        return start.removeprefix("self.") if start.startswith("self.") else None
    return None


def _start(text: ast.expr) -> str:
    """The letters that a text surely begins with."""
    if isinstance(text, ast.JoinedStr):
        return _start(text.values[0]) if text.values else ""
    if isinstance(text, ast.BinOp):
        return _start(text.left).split("%")[0]
    if isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute) and text.func.attr == "format":
        return _start(text.func.value).split("{")[0]
    return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
