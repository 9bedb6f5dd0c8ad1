"""What a run comes to only now, since a test of Apex's side went, finds there the objects that it asks something of.

`if amp_type == "apex": amp.load_state_dict(...)`, `else: self.grad_scaler.load_state_dict(...)`: where the first branch goes, a
run that asks for Apex comes to the second, and the field may be None, as the constructor gave it. Compared over all values of
what the tests ask: the runs that come to a statement now and did not, and those that gave the field something.

Cannot prove it of objects that are not fields of `self`, nor of fields that are given something under the same name elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change, conditions
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.side import Side
from amp_migrate.audit.ways.formulas import (
    Formula,
    atoms,
    conjunction,
    disjunction,
    example,
    minimal,
    negation,
    plain,
    spelled,
)
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP137: see `none_given.py`


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        told: set[tuple[str, str]] = set()
        for new, old in change.same.items() | change.rewritten.items() if "None" in change.after.text else ():
            if isinstance(new, (ast.If, ast.While, ast.For, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)):
                continue
            if conditions(change.after, new) == conditions(change.before, old):
                continue
            for asked in _asked(new):
                function = change.after.function_around(new)
                key = (function.qualname if function is not None else "", syntax.text(asked))
                doubt = _none(mixed(review), change, new, old, asked) if key not in told else None
                if doubt is not None:
                    told.add(key)
                    yield doubt


def _asked(stmt: ast.stmt) -> Iterator[ast.Attribute]:
    """The fields of which a statement asks something: `self.scaler` of `self.scaler.load_state_dict(state)`."""
    for node in syntax.own_line(stmt):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Attribute):
            if isinstance(node.value.value, ast.Name):
                yield node.value


def _none(both: Mixed, change: Change, new: ast.stmt, old: ast.stmt, field: ast.Attribute) -> Doubt | None:
    """That some run comes to a statement only now, and with a field that is None."""
    side, program, scope = both.after, both.review.after, change.after.scope_of(new)
    owner = program.is_self(scope, field.value)
    if owner is None:
        return None
    stored = side.values.own_fields(program.family(owner), field.attr)
    stores = [(module, value) for module, value, item in stored if not item]
    if not any(v is not None and syntax.is_none(v) for _, v in stores) or any(v is None for _, v in stores):
        return None
    name = syntax.text(field)
    asked = [test for test, _ in side.chains.tests(change.after, field)]
    if any(isinstance(n, ast.Attribute) and syntax.text(n) == name for test in asked for n in syntax.walk(test)):
        return None  # it asks for it first
    ways = [way for m, v in stores if v is not None and not syntax.is_none(v) for way in side.chains.to(m, v)]
    if not ways:
        return None
    given = disjunction([plain(side.predicates.given(way, loops=False, stops=False)) for way in ways])
    now = _local(both.after, change.after, new)
    before = _local(both.before, change.before, old)
    asserted = (_asserted(side, c) for c in program.family_up(owner))
    met = conjunction([now, negation(before), negation(given), _set_up(both, change, old), *asserted])
    found = example(met)
    if found is None or not atoms(plain(negation(before))) & set(minimal(met, found)):
        return None
    gone = {a: v for a, v in minimal(met, found).items() if a in atoms(before)}
    message = (
        f"a run{spelled(gone)} comes here now, and did not before: {name} may be None there, as nothing gave it anything, and "
        "this raises. Ask for it first"
    )
    doubt = both.review.doubt(change.after, new, "AMP137", name, message, "review")
    return replace(doubt, alike=message)


def _set_up(both: Mixed, change: Change, old: ast.stmt) -> Formula:
    """That Apex was set up, of runs that came to a loss scaled by it instead: without, they raised there."""
    module, inner = change.before, old
    for around in module.ancestors(old):
        if isinstance(around, ast.If):
            other = around.orelse if inner in around.body else around.body
            calls = (c for s in other for c in syntax.every(s, ast.Call))
            if any(both.review.before.dotted(module.scope_of(c), c.func) == "apex.amp.scale_loss" for c in calls):
                return disjunction(plain(on) for on in both.on_near(module))
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            break
        inner = around if isinstance(around, ast.stmt) else inner
    return True


def _asserted(side: Side, cls: Class) -> Formula:
    """What the constructor of a class asserts: no object that a method runs on is made otherwise."""
    made = cls.methods.get("__init__", ())
    tests = [(f, s.test) for f in made for s in f.node.body if isinstance(s, ast.Assert)]
    return plain(conjunction(side.predicates.of(test, side.predicates.trails.anywhere(f.scope)) for f, test in tests))


def _local(side: Side, module: Module, stmt: ast.stmt) -> Formula:
    """What a function asks before a statement in it."""
    place = side.predicates.trails.anywhere(module.scope_of(stmt))
    return plain(side.predicates.under(side.chains.tests(module, stmt), place))
