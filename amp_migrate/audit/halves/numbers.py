"""Which expressions are numbers of Python's, beside which a tensor keeps its dtype: constants, options, settings of objects."""

from __future__ import annotations

import ast

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.options import destination
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.names import OPTIONS
from amp_migrate.audit.values.values import Values


@kept
def is_number(values: Values, module: Module, expr: ast.expr) -> bool:
    """Whether an expression is a number wherever it comes from, or says so by its name: `temperature=1.0`, `args.scale`,
    `self.margin` of `margin=0.2`, `t` of `t = settings.temperature`."""
    if _said(expr):
        return True
    if isinstance(expr, ast.Attribute):
        return _kept(values, module, expr)
    origins = values.of(module, expr) if isinstance(expr, ast.Name) else frozenset()
    return bool(origins) and all(
        not o.path and (_written(o.node) or (isinstance(o.node, ast.Attribute) and _kept(values, o.module, o.node)))
        for o in origins
    )


def _kept(values: Values, module: Module, expr: ast.Attribute) -> bool:
    """Whether all that an attribute of this name is given is a number, in the family of a class where that is seen."""
    program = values.program
    owner = program.is_self(module.scope_of(expr), expr.value)
    if owner is not None:
        given = [(there, value) for there, value, _ in values.own_fields(program.family_up(owner), expr.attr)]
    else:
        given = [(there, value) for there, _, value, _ in values.fields(expr.attr)]
    known = bool(given) or (owner is None and _asked(program).get(expr.attr, False))
    return known and all(value is not None and _plain(there.function_around(value), value) for there, value in given)


@kept
def _asked(program: Program) -> dict[str, bool]:
    """What command lines are asked for, and whether that is a number each time."""
    found: dict[str, bool] = {}
    for module in program.having("add_argument"):
        for call in module.calls_named.get("add_argument", ()):
            named = {k.arg: k.value for k in call.keywords}
            kind = named.get("type")
            number = isinstance(kind, ast.Name) and kind.id in ("int", "float") and "nargs" not in named
            for name in destination(call) or ():
                found[name] = number and found.get(name, True)
    return found


def _plain(function: Function | None, value: ast.expr) -> bool:
    """Whether a function assigns a number: one that is written there, or a parameter that is one by default."""
    if isinstance(value, ast.Name):
        value = (function.defaults.get(value.id) if function is not None else None) or value
    if isinstance(value, ast.BinOp):
        return _plain(function, value.left) and _plain(function, value.right)
    if isinstance(value, (ast.Attribute, ast.Call)):
        return syntax.text(value).startswith("math.")
    return isinstance(value, ast.Constant) and isinstance(value.value, (int, float))


def _written(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float))
    if isinstance(node, (ast.AnnAssign, ast.arg)):
        return node.annotation is not None and syntax.text(node.annotation) in ("int", "float")
    return isinstance(node, ast.expr) and _said(node)


def _said(expr: ast.expr) -> bool:
    """Whether an expression is a number of Python's, as far as its name says: an option, a length, a constant."""
    if isinstance(expr, ast.Call):
        text = syntax.text(expr.func)
        return text in ("len", "int", "float", "max", "min") or text.startswith("math.")
    if isinstance(expr, ast.Subscript):
        return isinstance(expr.slice, ast.Constant) and isinstance(expr.slice.value, str) and _said(expr.value)
    parts = syntax.text(expr).split(".")
    if isinstance(expr, ast.Name):
        return expr.id.isupper() or expr.id in OPTIONS
    return isinstance(expr, ast.Attribute) and any(p in OPTIONS for p in parts[:2])
