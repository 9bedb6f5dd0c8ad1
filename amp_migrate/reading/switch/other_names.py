"""A condition where what it starts from has another name: `config.half` of a function that is given `options`, or returns what
it read as `net, read = load(parser)`."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import LOOP_NODES, Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.reading.switch.bound_anew import given_by, uses_of
from amp_migrate.reading.switch.elsewhere import in_call
from amp_migrate.reading.switch.given_again import stored_fields
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.reaching import reaching_at
from amp_migrate.reading.values.table import Value

MADE = ("call", "item", "instance")  # kinds of values that are one object


def under_other_name(project: Project, text: str, home: Scope, there: Scope, at: ast.stmt) -> str | None:
    """An expression of one scope in terms of what another gives it, or holds of the very object at a statement; None where
    that is not seen."""
    if home is there or there.module.scope_of(at) is not there:
        return None
    return _as_given(project, text, home, there, at) or _as_held(project, text, home, there, at)


def _as_given(project: Project, text: str, home: Scope, there: Scope, at: ast.stmt) -> str | None:
    """In terms of the one call by which a function runs the other, above the statement."""
    function, module = project.functions.get(home.node), there.module
    calls = [c for m, c in project.calls.get(function, ()) if m.scope_of(c) is there] if function is not None else []
    if function is None or len(calls) != 1 or not _ran(module, module.statement(calls[0]), at):
        return None
    given = {name: ast.unparse(value) for name, value in project.arguments(function, calls[0])}
    found = in_call(project, text, given, home, there)
    if found is None or any(_bound(there, n, calls[0]) != _bound(there, n, at) for n in _names(found)):
        return None
    read = ast.parse(found)  # of a parameter that is a field elsewhere, which may be given another value since
    anew = isinstance(ast.parse(text, mode="eval").body, ast.Name) and any(
        next(stored_fields(project, m, read), None) for m in project.modules
    )
    return None if anew else found


def _as_held(project: Project, text: str, home: Scope, there: Scope, at: ast.stmt) -> str | None:
    """By the one name under which a scope holds, at a statement, what the expression starts from."""
    tree = ast.parse(text, mode="eval")
    names = identifiers(tree)
    owner = home.lookup(next(iter(names))) if len(names) == 1 else None
    if owner is None or owner.is_module:
        return None
    uses = uses_of(text, next(iter(names)), home, owner)
    meant = {project.once(Values).may_be(home.module, use) for use in uses}
    one = meant.pop() if len(meant) == 1 else frozenset[Value]()
    if len(one) != 1 or not all(v.kind in MADE and _made_once(v, home, there) for v in one):
        return None
    held = [name for name, bindings in there.bindings.items() if _holds(project, there, name, bindings, at, one)]
    if len(held) != 1:
        return None
    for node in walk(tree):
        if isinstance(node, ast.Name):
            node.id = held[0]
    return there.module.written(tree)


def _holds(
    project: Project, there: Scope, name: str, bindings: list[ast.AST], at: ast.stmt, one: frozenset[Value]
) -> bool:
    """Whether a name holds just one object at a statement."""
    module, read = there.module, _bound(there, name, at)
    sure = any(isinstance(b, ast.arg) or _ran(module, module.statement(b), at) for b in bindings if b in read)
    return sure and all(given_by(project, there, b) == one for b in read)


def _made_once(value: Value, *scopes: Scope) -> bool:
    """Whether what makes an object stands in one of some scopes, or where a file is loaded: a helper makes many."""
    scope = value.module.scope_of(value.node)
    return scope in scopes or (
        scope.is_module and not any(isinstance(a, LOOP_NODES) for a in value.module.ancestors(value.node))
    )


def _ran(module: Module, stmt: ast.stmt, at: ast.stmt) -> bool:
    """Whether a statement comes before another in each run that comes to that."""
    around = [at, *module.ancestors(at)]
    return stmt.lineno < at.lineno and stmt not in around and any(s in around for s in module.block(stmt))


def _bound(there: Scope, name: str, at: ast.expr | ast.stmt) -> list[ast.AST]:
    return list(reaching_at(there, at, name))


def _names(text: str) -> set[str]:
    return identifiers(ast.parse(text, mode="eval"))
