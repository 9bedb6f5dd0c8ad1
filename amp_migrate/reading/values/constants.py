"""The constants that an expression may come to, computed from what its parts may be."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

from amp_migrate.reading.program import logic
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.values.table import Answer, Value

Found = frozenset[object]

MOST = 64  # combinations of what the parts may be
BINARY: dict[type[ast.operator], Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], object]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    **logic.COMPARED,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, held: item in held,
    ast.NotIn: lambda item, held: item not in held,
}
PYTHON: dict[str, Callable[..., object]] = {"str": str, "int": int, "float": float, "bool": bool}
TEXT = frozenset("upper lower strip title capitalize replace lstrip rstrip removeprefix removesuffix".split())
LARGEST = 64  # exponent
NOTHING: Found = frozenset((None,))


class Constants:
    """Asks `may_be`, and computes with what it says. Where what is computed goes into itself, nothing is known."""

    def __init__(self, may_be: Callable[[Module, ast.expr], Answer]) -> None:
        self.may_be = may_be
        self._known: dict[ast.AST, Found | None] = {}

    def of(self, module: Module, node: ast.expr) -> Found | None:
        """All that an expression may come to; None where it may be something that is not a constant."""
        if node not in self._known:
            self._known[node] = None
            self._known[node] = self.among(self.may_be(module, node))
        return self._known[node]

    def truth(self, module: Module, node: ast.expr) -> bool | None:
        """Whether an expression is true; None where it may be either, or anything else than constants."""
        found = {bool(value) for value in self.of(module, node) or ()}
        return found.pop() if len(found) == 1 else None

    def among(self, values: Answer) -> Found | None:
        """The constants that some values are; None where one is none, or where there are no values."""
        return _joined(map(self._folded, values)) or None

    def _folded(self, value: Value) -> Found | None:
        node, module = value.node, value.module
        if value.kind == "constant":
            return frozenset((value.constant,))
        if value.kind == "bool":
            return frozenset((False, True))
        if value.kind == "option" and isinstance(node, ast.Call):
            return self._option(module, node)
        if value.kind not in ("computed", "call"):
            return None
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            return self._computed(module, (node.left, node.right), lambda a, b: _binary(node.op, a, b))
        if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
            return self._computed(module, (node.operand,), UNARY[type(node.op)])
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
            return self._computed(module, (node.left, node.comparators[0]), COMPARED[type(node.ops[0])])
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and not any(isinstance(e, ast.Starred) for e in node.elts):
            return self._computed(module, node.elts, lambda *items: items)
        if isinstance(node, ast.JoinedStr):
            plain = [v.value if isinstance(v, ast.FormattedValue) and v.format_spec is None else v for v in node.values]
            if all(not isinstance(v, ast.FormattedValue) for v in plain):
                return self._computed(module, plain, lambda *parts: "".join(map(str, parts)))
        if isinstance(node, ast.Call) and not node.keywords:
            return self._called(module, node)
        return None

    def _called(self, module: Module, node: ast.Call) -> Found | None:
        func = node.func
        if isinstance(func, ast.Name) and func.id in PYTHON and len(node.args) == 1:
            if module.scope_of(func).lookup(func.id) is None:
                return self._computed(module, node.args, PYTHON[func.id])
        if isinstance(func, ast.Attribute) and (func.attr in TEXT or func.attr == "format"):
            method = func.attr
            return self._computed(module, (func.value, *node.args), lambda text, *args: _method(text, method, args))
        return None

    def _computed(self, module: Module, parts: Iterable[ast.expr], compute: Callable[..., object]) -> Found | None:
        known: list[Found] = []
        for part in parts:
            found = self.of(module, part)
            if found is None:
                return None
            known.append(found)
        combinations = list(product(*known)) if _size(known) <= MOST else []
        try:
            return frozenset(compute(*values) for values in combinations) or None
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
            return None

    def _option(self, module: Module, call: ast.Call) -> Found | None:
        """What a command-line option allows: its `choices` and its default; what a switch stores."""
        named = {k.arg: k.value for k in call.keywords}
        action, choices, default = named.get("action"), named.get("choices"), named.get("default")
        if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
            usual = self.of(module, default) if default is not None else frozenset((action.value == "store_false",))
            return None if usual is None else usual | {action.value == "store_true"}
        if not isinstance(choices, (ast.List, ast.Tuple, ast.Set)):
            return None
        found = [self.of(module, choice) for choice in choices.elts]
        required = named.get("required")
        if default is not None:
            found.append(self.of(module, default))
        elif not (isinstance(required, ast.Constant) and required.value is True):
            found.append(frozenset((None,)))
        return _joined(found)


def _joined(found: Iterable[Found | None]) -> Found | None:
    values: set[object] = set()
    for part in found:
        if part is None:
            return None
        values |= part
    return frozenset(values)


def _size(known: Iterable[Found]) -> int:
    size = 1
    for found in known:
        size *= len(found)
    return size


def _binary(op: ast.operator, left: Any, right: Any) -> object:
    if isinstance(op, (ast.Pow, ast.LShift)) and abs(right) > LARGEST:
        raise ValueError("a number too large to compute")
    if isinstance(op, ast.Mult) and not all(isinstance(v, (int, float)) for v in (left, right)):
        raise TypeError("text many times")
    return BINARY[type(op)](left, right)


def _method(text: object, method: str, args: tuple[object, ...]) -> object:
    if not isinstance(text, str):
        raise TypeError("no text")
    return getattr(text, method)(*args)
