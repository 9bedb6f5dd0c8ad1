"""A run that came by Apex, where a native side of the program's own stands beside it, has that side now.

Proves: where the migration makes no GradScaler of its own, and the program had one beside Apex, that one is made in every run
that came by `initialize`. A choice that a variable keeps (`use_amp = "apex"`) is asked for where it is made. Cannot prove it of
choices that come from out of sight, nor of scalers that a library makes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review, calls_in
from amp_migrate.audit.side import Side
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.formulas import (
    Formula,
    atoms,
    conjunction,
    disjunction,
    example,
    matter,
    minimal,
    negation,
    spelled,
)
from amp_migrate.audit.ways.off_instead import GRAD_SCALER
from amp_migrate.audit.ways.trails import Place
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP531: see `precision.py`
DEPTH = 3  # choices that hang on choices


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    own = _own_scalers(both) if both.removed else []
    if not own:
        return
    made = disjunction(_came(both.after, w) for module, call in own for w in both.after.chains.to(module, call))
    for setup in both.removed:
        if setup.module.path not in review.changes:
            continue
        for way in both.before.chains.to(setup.module, setup.call):
            lost = conjunction([_came(both.before, way), both.switched(setup, way), negation(made)])
            unknown = any(" == " in a or " is " in a for a in atoms(lost))
            if unknown or (found := example(lost)) is None:
                continue
            when = matter(minimal(lost, found), True, lost)
            message = (
                f"Apex was set up here{spelled(when)}, and the program's own GradScaler, which stays, is not made in such a run: it "
                "trains in float32 now. Let what chose Apex choose the native side"
            )
            yield Doubt(setup.module.path, setup.call.lineno, "AMP531", "amp.initialize", message, "review")
            return


def _own_scalers(both: Mixed) -> list[tuple[Module, ast.Call]]:
    """The GradScalers of the program, where all stood in it before."""
    found: list[tuple[Module, ast.Call]] = []
    for module in both.after.modules:
        for call, _ in calls_in(both.review.after, module, GRAD_SCALER) if "GradScaler" in module.text else ():
            was = both.review.statement_before(module, call)
            if was is None or "GradScaler" not in syntax.text(was[1]):
                return []
            found.append((module, call))
    return found


def _came(side: Side, way: Chain) -> Formula:
    """That a run goes a way, by the tests along it, with choices where they are made."""
    places = side.predicates.places(way)
    tests = (
        (step.module, test, came, place)
        for step, place in zip(way.steps, places, strict=True)
        for test, came in side.chains.tests(step.module, step.node)
    )
    return conjunction(
        found if came else negation(found) for m, t, came, place in tests for found in [_asked(side, m, t, place, 0)]
    )


def _asked(side: Side, module: Module, test: ast.expr, place: Place, depth: int) -> Formula:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return negation(_asked(side, module, test.operand, place, depth))
    if isinstance(test, ast.BoolOp):
        parts = [_asked(side, module, v, place, depth) for v in test.values]
        return conjunction(parts) if isinstance(test.op, ast.And) else disjunction(parts)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and depth < DEPTH:
        op, value = test.ops[0], test.comparators[0]
        held = _held(side, module, test.left, value, place, depth) if isinstance(value, ast.Constant) else None
        if held is not None and isinstance(op, (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)):
            return held if isinstance(op, (ast.Eq, ast.Is)) else negation(held)
    return side.predicates.of(test, place)


def _held(side: Side, module: Module, name: ast.expr, value: ast.Constant, place: Place, depth: int) -> Formula | None:
    """When a variable holds a constant, of which it is given one or another under tests; None where it is given more."""
    scope = module.scope_of(name).binder(name.id) if isinstance(name, ast.Name) else None
    if scope is None or not isinstance(name, ast.Name) or scope is not place.scope:
        return None
    given = list(_constants(scope.bindings[name.id]))
    if not given or len(given) < len(scope.bindings[name.id]):
        return None
    found: Formula = False
    for stmt, constant in sorted(given, key=lambda g: g[0].lineno):
        tests = side.chains.tests(module, stmt)
        parts = ((_asked(side, module, t, place, depth + 1), came) for t, came in tests)
        under = conjunction(part if came else negation(part) for part, came in parts)
        holds = constant.value == value.value
        found = disjunction([found, under]) if holds else conjunction([found, negation(under)])
    return found


def _constants(bindings: Iterable[ast.AST]) -> Iterator[tuple[ast.Assign, ast.Constant]]:
    for stmt in bindings:
        if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.value, ast.Constant):
            yield stmt, stmt.value
