"""How tests of its parameters come out in a function, as one call fills them."""

from __future__ import annotations

import ast
from collections.abc import Container, Mapping
from typing import Final, Literal

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Scope
from amp_migrate.audit.program.program import Program

SOMETHING: Final = "something"  # no constant, and not None
Given = ast.Constant | Literal["something"]


def given_to(
    program: Program, function: Function, scope: Scope, call: ast.Call, known: Mapping[str, Given] | None = None
) -> dict[str, Given]:
    """What is known of the parameters of a function in one call that its tests ask for: constants, and what is surely a value.

    `known`: the same of the function that calls, which may hand on what it is given.
    """
    filled = program.arguments(function, call)
    asked, handed = (_tested(function), _handed_on(function)) if filled is not None else (frozenset(), frozenset())
    found: dict[str, Given] = {}
    if filled is None or not (asked or handed):
        return found
    for parameter in function.parameters:
        name = parameter.arg
        value = filled.get(name) or function.defaults.get(name)
        its = known.get(value.id) if known and isinstance(value, ast.Name) and name in filled else None
        constant = its if isinstance(its, ast.Constant) else value
        if isinstance(constant, ast.Constant):
            if name in asked or (name in handed and isinstance(constant.value, bool)):
                found[name] = constant
        elif name in asked and name in filled and value is not None and _is_something(scope, value):
            found[name] = SOMETHING
    return found


def told_apart(given: Mapping[str, Given]) -> frozenset[tuple[str, str]]:
    """What tells two calls apart."""
    return frozenset((k, v if isinstance(v, str) else repr(v.value)) for k, v in given.items())


@kept
def _tested(function: Function) -> frozenset[str]:
    """The names that tests in a function ask for, and the switches of its regions."""
    asked = [n.test for n in syntax.walk(function.node) if isinstance(n, (ast.If, ast.IfExp))]
    asked += [k.value for c in syntax.every(function.node, ast.Call) for k in c.keywords if k.arg == "enabled"]
    return frozenset(n.id for t in asked for n in syntax.every(t, ast.Name))


@kept
def _handed_on(function: Function) -> frozenset[str]:
    """The names that a function gives others as they are."""
    given = (v for c in syntax.every(function.node, ast.Call) for v in syntax.given(c))
    return frozenset(v.id for v in given if isinstance(v, ast.Name))


def _is_something(scope: Scope, value: ast.expr) -> bool:
    """Whether an argument is no None: what is computed, an item of a batch. A variable may be one that was told to be None."""
    if isinstance(value, ast.Name):
        bound = scope.binder(value.id)
        nodes = bound.bindings[value.id] if bound is not None else []
        return bool(nodes) and all(
            isinstance(n, (ast.Assign, ast.For)) and not _is_none(n.value if isinstance(n, ast.Assign) else n.iter)
            for n in nodes
        )
    if isinstance(value, ast.Call):
        return True
    return isinstance(value, ast.Subscript) or (isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name))


def _is_none(value: ast.expr) -> bool:
    """Whether a value may be None as it is written: `None`, `x if labelled else None`."""
    if isinstance(value, ast.IfExp):
        return _is_none(value.body) or _is_none(value.orelse)
    if isinstance(value, ast.Tuple):
        return any(_is_none(v) for v in value.elts)
    return syntax.is_none(value)


def comes_out(test: ast.expr, given: Mapping[str, Given], bound: Container[str]) -> bool | None:
    """How a test comes out with the parameters as they are given, less those that were `bound` again; None: not known."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        truth = comes_out(test.operand, given, bound)
        return None if truth is None else not truth
    if isinstance(test, ast.BoolOp):
        parts = [comes_out(v, given, bound) for v in test.values]
        ends = isinstance(test.op, ast.Or)
        if ends in parts:
            return ends
        return None if None in parts else not ends
    if isinstance(test, ast.Name):
        value = given.get(test.id) if test.id not in bound else None
        return bool(value.value) if isinstance(value, ast.Constant) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, ast.Name):
        return None
    value = given.get(test.left.id) if test.left.id not in bound else None
    op, other = test.ops[0], test.comparators[0]
    if value is None or not isinstance(other, ast.Constant):
        return None
    if isinstance(op, (ast.Is, ast.IsNot)) or other.value is None:
        if not isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)) or not (
            other.value is None or isinstance(value, ast.Constant)
        ):
            return None
        same = isinstance(value, ast.Constant) and value.value is other.value
        return same is isinstance(op, (ast.Is, ast.Eq))
    if isinstance(op, (ast.Eq, ast.NotEq)) and isinstance(value, ast.Constant):
        return (value.value == other.value) is isinstance(op, ast.Eq)
    return None
