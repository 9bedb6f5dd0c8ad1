"""Which optimizer a state is loaded into: what a call made at some line of the program, or what is not seen to be another."""

from __future__ import annotations

import ast

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.values.origins import Origin
from amp_migrate.audit.values.values import Values

DEPTH = 3  # wrappers around it


def may_load(values: Values, where: Module, holder: ast.expr, made: Module, line: int) -> bool:
    """Whether an optimizer that a state is loaded into may be what a line makes, or a wrapper around that."""
    found = list(values.origins(where.scope_of(holder), holder))
    return not found or any(_is_unseen(values, o) or _is(values, o, made, line, DEPTH) for o in found)


def _is_unseen(values: Values, origin: Origin) -> bool:
    """Whether it is not seen of which class something is."""
    return not isinstance(origin.node, ast.Call) or values.maker(origin) is None


def _is(values: Values, origin: Origin, made: Module, line: int, depth: int) -> bool:
    call = origin.node
    if not isinstance(call, ast.Call) or not depth:
        return False
    if origin.module is made and call.lineno <= line <= (call.end_lineno or call.lineno):
        return True
    scope = origin.module.scope_of(call)
    for defined in values.program.definitions(scope, call.func, guess=False):
        node = defined.node
        if defined.module is made and getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", 0) or 0):
            return True  # its own constructor makes it
    given = (v for v in syntax.given(call) if isinstance(v, (ast.Name, ast.Attribute, ast.Call)))
    return any(_is(values, o, made, line, depth - 1) for value in given for o in values.origins(scope, value))
