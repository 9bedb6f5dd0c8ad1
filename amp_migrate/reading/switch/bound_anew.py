"""What a name holds where a condition is read: a name that is bound anew (`args = vars(args)`) may hold another thing there
than where the condition comes from."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.reaching import reaching, reaching_at
from amp_migrate.reading.values.sources import given_to
from amp_migrate.reading.values.table import Value

SEEN = ("call", "item", "constant", "instance", "computed", "named")  # kinds of values that tell one thing from another


def held_anew(project: Project, text: str, name: str, home: Scope, there: Scope, at: ast.stmt | None = None) -> bool:
    """Whether a name of an expression that `home` reads may hold in `there`, at a statement of it if one is given, what `home`
    gave it at another time, or what `there` gives it itself. Only what is seen counts: what is not says nothing of another
    thing."""
    owner, other = home.lookup(name), there.lookup(name)
    if owner is None or other is None or max(len(s.bindings.get(name, ())) for s in (owner, other)) < 2:
        return False
    uses = uses_of(text, name, home, owner)
    if not uses:
        return False
    meant = [project.once(Values).may_be(home.module, use) for use in uses]
    same = frozenset.intersection(*meant)
    if owner is other:
        later = _later(owner, uses)
        return any(v.kind in SEEN and v not in same for b in later for v in given_by(project, owner, b))
    elsewhere = {v for b in owner.bindings[name] for v in given_by(project, owner, b) if v.kind in SEEN} - same
    bindings = reaching_at(other, at, name) if at is not None else other.bindings.get(name, ())
    told = at is not None and all(v.kind in SEEN for v in frozenset[Value]().union(*meant))  # all that is meant is seen
    own = [b for b in bindings if not isinstance(b, ast.arg)] if name in other.params or told else []
    if any(v.kind in SEEN and v not in same for b in own for v in given_by(project, other, b)):
        return True
    return any(v in elsewhere for b in bindings for v in given_by(project, other, b))


def uses_of(text: str, name: str, home: Scope, owner: Scope) -> list[ast.Name]:
    """Where a scope reads an expression's part that starts with a name: `args.level` of `args.level != "O0"`."""
    read = [n for n in walk(ast.parse(text, mode="eval")) if _starts_with(n, name)]
    inner = {n.value for n in read if isinstance(n, (ast.Attribute, ast.Subscript))}
    parts = {ast.unparse(n) for n in read if n not in inner}
    found: list[ast.Name] = []
    for use in owner.reads(name):
        if home.module.scope_of(use) is home and _longest(home, use) in parts:
            found.append(use)
    return found


def _starts_with(node: ast.AST, name: str) -> bool:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id == name


def _longest(scope: Scope, use: ast.Name) -> str:
    """The attribute or item that a name is read for, the longest."""
    module, node = scope.module, use
    found: ast.AST = node
    while isinstance(parent := module.parents.get(found), (ast.Attribute, ast.Subscript)) and parent.value is found:
        found = parent
    return ast.unparse(found)


def _later(owner: Scope, uses: list[ast.Name]) -> list[ast.AST]:
    """The bindings of a name that may come after all that some uses of it read."""
    name, first = uses[0].id, min(use.lineno for use in uses)
    read = {b for use in uses for b in reaching(owner, use)}
    return [b for b in owner.bindings[name] if b not in read and getattr(b, "lineno", 0) > first]


def given_by(project: Project, scope: Scope, binding: ast.AST) -> frozenset[Value]:
    """What a binding of a name gives it."""
    values = project.once(Values)
    if isinstance(binding, ast.arg):
        return (
            values.passed(project.functions[scope.node], binding.arg)
            if scope.node in project.functions
            else frozenset()
        )
    given = given_to(scope.module, binding) if isinstance(binding, ast.Name) else None
    return values.may_be(scope.module, given.value, given.path) if given is not None and given.value else frozenset()
