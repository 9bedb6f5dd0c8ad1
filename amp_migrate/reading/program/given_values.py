"""What a name is given where it stands: the values of the plain assignments that bind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.module import Module, Scope


def single_assignment(module: Module, name: ast.Name) -> ast.expr | None:
    """The value of a name that its scope binds exactly once, by a plain assignment."""
    return given_once(module.scope_of(name).lookup(name.id), name.id)


def given_once(scope: Scope | None, name: str) -> ast.expr | None:
    """The value of a name that a scope binds exactly once, by a plain assignment."""
    bindings = scope.bindings.get(name, []) if scope is not None else []
    stmt = scope.module.parents.get(bindings[0]) if scope is not None and len(bindings) == 1 else None
    return stmt.value if isinstance(stmt, ast.Assign) and stmt.targets == bindings else None


def given(scope: Scope, name: str) -> list[ast.expr]:
    """What a name may be that a scope binds by plain assignments alone: `run = train if full else tune`, also in an `if` and
    its `else`; empty where something else binds it."""
    stmts = [(b, scope.module.parents.get(b)) for b in scope.bindings.get(name, ())]
    values = [s.value for b, s in stmts if isinstance(s, ast.Assign) and s.targets == [b]]
    return [one for value in values for one in alternatives(value)] if len(values) == len(stmts) else []


def lambdas(module: Module, name: ast.Name) -> list[ast.Lambda]:
    """What a name is given that is called, where that is one of some lambdas: `make = lambda size: Net(size)`."""
    owner = module.scope_of(name).lookup(name.id)
    stmts = [module.parents.get(b) for b in owner.bindings.get(name.id, ())] if owner is not None else []
    values = [s.value if isinstance(s, ast.Assign) else None for s in stmts]
    found = [value for value in values if isinstance(value, ast.Lambda)]
    return found if len(found) == len(values) else []


def alternatives(value: ast.expr) -> Iterator[ast.expr]:
    """What an expression may come to: both sides of `a if test else b`."""
    if isinstance(value, ast.IfExp):
        yield from alternatives(value.body)
        yield from alternatives(value.orelse)
    else:
        yield value
