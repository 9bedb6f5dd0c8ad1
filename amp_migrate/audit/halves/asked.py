"""Tests of what dtype a tensor has: where it is no half tensor, by how they come out."""

from __future__ import annotations

import ast

from amp_migrate.audit import dtypes as known
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Scope
from amp_migrate.audit.program.program import Program

_HALF = frozenset({"torch.float16", "torch.half", "torch.HalfTensor", "torch.cuda.HalfTensor"})
_OTHER = frozenset({*known.FLOAT_TYPES, *known.INTEGER_TYPES, "torch.cuda.FloatTensor", "torch.cuda.DoubleTensor"})


def not_half(program: Program, scope: Scope, test: ast.expr) -> tuple[list[str], list[str]]:
    """The tensors, as they are written, that are not half where a test holds, and where it does not."""
    return _not_half(program, scope, test, True), _not_half(program, scope, test, False)


def _not_half(program: Program, scope: Scope, test: ast.expr, truth: bool) -> list[str]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _not_half(program, scope, test.operand, not truth)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if truth else ast.Or):
        return [text for value in test.values for text in _not_half(program, scope, value, truth)]
    if isinstance(test, ast.Call) and (floating := asked_to_float(program, scope, test)) is not None:
        return [] if truth else [syntax.text(floating)]
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return []
    tensor = _of_dtype(test.left)
    if tensor is None:
        return []
    op, other = test.ops[0], test.comparators[0]
    among = [other]
    if isinstance(op, (ast.In, ast.NotIn)):
        among = other.elts if isinstance(other, (ast.Tuple, ast.List, ast.Set)) else []
    names = {_dtype(program, scope, e) for e in among}
    alike = truth is isinstance(op, (ast.Eq, ast.Is, ast.In))
    if (alike and names and names <= _OTHER) or (not alike and any(n in _HALF for n in names)):
        return [syntax.text(tensor)]
    return []


def asked_to_float(program: Program, scope: Scope, call: ast.Call) -> ast.expr | None:
    """`x` of `x.is_floating_point()` and of `torch.is_floating_point(x)`."""
    if program.dotted(scope, call.func) == "torch.is_floating_point":
        return call.args[0] if call.args else None
    method = call.func if isinstance(call.func, ast.Attribute) and not call.args else None
    return method.value if method is not None and method.attr == "is_floating_point" else None


def _of_dtype(expr: ast.expr) -> ast.expr | None:
    """`x` of `x.dtype` and of `x.type()`."""
    if isinstance(expr, ast.Call) and not expr.args and not expr.keywords and isinstance(expr.func, ast.Attribute):
        return expr.func.value if expr.func.attr == "type" else None
    return expr.value if isinstance(expr, ast.Attribute) and expr.attr == "dtype" else None


def _dtype(program: Program, scope: Scope, expr: ast.expr) -> str:
    if isinstance(expr, ast.Constant):
        return str(expr.value)
    return program.dotted(scope, expr) or ""
