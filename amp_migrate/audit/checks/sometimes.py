"""A field that a constructor assigns under a test is read only where that test came out so.

Asked of fields of `self`, or of an object that a variable is seen to hold, that the migration newly reads, where nothing but
`__init__` assigns them, and each time under a test: the flags on each way to the read are compared with those of the test, by
the names that flags have. `assigned.py` asks of fields that other methods assign, and takes such a constructor at its word. Not
asked where the method read another field before that the same test brings: it ran in those runs only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.side import Side
from amp_migrate.audit.ways.formulas import (
    Formula,
    atoms,
    conjunction,
    disjunction,
    example,
    flags_told,
    minimal,
    negation,
    plain,
)
from amp_migrate.audit.ways.trails import Place
from amp_migrate.audit.ways.within import Tests, raises_else
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP131: see `assigned.py`


def check(review: Review) -> Iterable[Doubt]:
    both: Mixed | None = None
    for change in review.changes.values():
        told: set[tuple[Function | None, str]] = set()
        for node in _newly_read(change):
            function = change.after.function_around(node)
            owner = _owner(review, change.after, function, node)
            if owner is None or (function, node.attr) in told:
                continue
            stores = _stores(review, owner, node.attr)
            if not stores:
                continue
            both = both or mixed(review)
            when = _when(both.after, stores)
            if when is True or _brought_before(both, change, function, owner, when):
                continue
            missed = _missed(both.after, change.after, node, when)
            if missed is not None:
                told.add((function, node.attr))
                where, sure = missed
                text = syntax.text(node)
                place = ", ".join(f"{m.path}:{review.line(m, s)}" for m, s in stores)
                message = f"{text} has no value here where {where}: the constructor assigns it at {place} only"
                verdict: Verdict = "refuse" if sure else "look"
                yield review.doubt(change.after, node, "AMP131", text, message, verdict)


def _owner(review: Review, module: Module, function: Function | None, node: ast.Attribute) -> Class | None:
    """The class of the object whose field is read: a method's own, once it is made, or what a variable is seen to hold."""
    scope = module.scope_of(node)
    owner = review.after.is_self(scope, node.value)
    if owner is not None:
        return owner if function is not None and function.name != "__init__" else None
    values = review.values_after
    made = [set(values.classes(origin)) for origin in values.origins(scope, node.value)]
    return next(iter(made[0])) if made and len(made[0]) == 1 and all(m == made[0] for m in made) else None


def _newly_read(change: Change) -> Iterator[ast.Attribute]:
    for stmt in [*change.added, *change.rewritten]:
        old = change.rewritten.get(stmt)
        known = syntax.text(old) if old is not None else ""
        for node in syntax.own_line(stmt):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
                if syntax.text(node) not in known:
                    yield node


def _stores(review: Review, owner: Class, name: str) -> list[tuple[Module, ast.Attribute]]:
    """Where a field is assigned; nothing where anything but the constructor does, or may have brought it."""
    program, family = review.after, review.after.family(owner)
    if any(name in c.scope.bindings or "__getattr__" in c.scope.bindings for c in family):
        return []
    found = []
    for module, target, _, _ in review.values_after.fields(name):
        holder = program.is_self(module.scope_of(target), target.value)
        function = module.function_around(target)
        if holder is None and module is owner.module:
            return []
        if holder in family:
            if function is None or function.name != "__init__":
                return []
            found.append((module, target))
    return found


def _when(side: Side, stores: list[tuple[Module, ast.Attribute]]) -> Formula:
    """Under which tests of the constructor a field is assigned; where it raises else, there is no object."""

    def asked(module: Module, target: ast.Attribute) -> Tests:
        tests = side.chains.tests(module, module.statement(target))
        return [(test, came) for test, came in tests if not raises_else(module, test, came)]

    return disjunction(side.predicates.under(asked(m, t), Place(m.scope_of(t))) for m, t in stores)


def _brought_before(both: Mixed, change: Change, function: Function | None, owner: Class, when: Formula) -> bool:
    """Whether the function read, before, what the same tests bring."""
    old = change.function_before(function) if function is not None else None
    read = syntax.own(old.node, ast.Attribute) if old is not None else ()
    found = (
        _stores(both.review, owner, name) for name in sorted({n.attr for n in read if isinstance(n.ctx, ast.Load)})
    )
    return any(stores and _when(both.after, stores) == when for stores in found)


def _missed(side: Side, module: Module, node: ast.Attribute, when: Formula) -> tuple[str, bool] | None:
    """The runs that read a field without it, and whether they are sure to come here."""
    if any("hasattr" in (text := syntax.text(t)) and node.attr in text for t, _ in side.chains.tests(module, node)):
        return None
    for chain in side.chains.to(module, node):
        missed = plain(conjunction([side.predicates.given(chain), negation(when)]))
        found = example(missed)
        if found is None:
            continue
        asked = (
            atoms(plain(when)) if when is not False else atoms(missed)
        )  # it is assigned in none of the runs there are
        said = flags_told({a: v for a, v in minimal(missed, found).items() if a in asked})
        if said or when is False:
            return " and ".join(said[:3]) or "nothing assigned it", not chain.open and side.chains.certain(chain)
    return None
