"""What a variable was chosen to be, `mode = "apex"` under one test and `mode = None` in front: asked for by those tests. What
asks whether an option was given, where that is a text."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.options import always_text
from amp_migrate.audit.ways.formulas import Formula, conjunction, disjunction, negation
from amp_migrate.audit.ways.trails import Place
from amp_migrate.audit.ways.within import raises_else

if TYPE_CHECKING:
    from amp_migrate.audit.ways.predicates import Predicates

MOST = 6  # assignments to one variable


def chosen_to_be(predicates: Predicates, asked: ast.expr, value: ast.expr, place: Place, depth: int) -> Formula | None:
    """When a variable of a function holds a constant, all of whose values are constants; None where it is given more."""
    if not isinstance(value, ast.Constant) or value.value is None:
        return None
    name, there = predicates.trails.end(asked, place)
    scope = there.scope.binder(name.id) if isinstance(name, ast.Name) else None
    if scope is None or not isinstance(name, ast.Name) or not 1 < len(scope.bindings[name.id]) <= MOST:
        return None
    given = [s for s in scope.bindings[name.id] if isinstance(s, ast.Assign) and syntax.gives_whole(s)]
    if len(given) < len(scope.bindings[name.id]) or not all(isinstance(s.value, ast.Constant) for s in given):
        return None
    inside = there if scope is there.scope else predicates.trails.anywhere(scope)
    found: Formula = False
    for stmt in sorted(given, key=lambda s: s.lineno):
        assert isinstance(stmt.value, ast.Constant)
        tests = [t for t in predicates.chains.tests(scope.module, stmt) if not raises_else(scope.module, *t)]
        under = predicates.under(tests, inside, depth + 1)
        same = stmt.value.value == value.value
        found = disjunction([found, under]) if same else conjunction([found, negation(under)])
    return found


def said_outright(predicates: Predicates, left: ast.expr, right: ast.expr, place: Place, depth: int) -> Formula | None:
    """What `flag == False` asks: that it is not on."""
    if not isinstance(right, ast.Constant) or not isinstance(right.value, bool):
        return None
    asked = predicates.of(left, place, depth + 1)
    return asked if right.value else negation(asked)


def given_at_all(predicates: Predicates, left: ast.expr, right: ast.expr, place: Place, depth: int) -> Formula | None:
    """What `args.level == ""` asks: that the option is not on, where it is a text and nothing else gives it a value."""
    if not isinstance(right, ast.Constant) or right.value != "":
        return None
    option, there = predicates.trails.end(left, place)
    if not isinstance(option, ast.Attribute) or not always_text(predicates.program, option.attr):
        return None
    if any(stored.owner is None for stored in predicates.values.stored(option.attr)):
        return None
    return negation(predicates.of(option, there, depth + 1))
