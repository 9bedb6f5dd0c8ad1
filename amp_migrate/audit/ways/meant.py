"""What a test that came out so says: of a flag, what it was made of.

`self.mixed = args.fp16 and "apex" in config` is asked later as `if self.mixed:`, in this method or another: where that holds,
each part of what the flag was given does, and so do the tests around the one place where it is given anything true. Of a
flag that is given something true in several places nothing is said, and none of one that came out false but what its only
value says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.ways.chains import Chains
from amp_migrate.audit.ways.within import Tests

DEPTH = 4  # flags that stand for flags


class Said(NamedTuple):
    """One test that holds no other, the file it is written in, and how it came out."""

    module: Module
    test: ast.expr
    came: bool


class Meant:
    """Answers for one state of a program."""

    def __init__(self, chains: Chains) -> None:
        self.chains = chains
        self.program = chains.program
        self.values = chains.forwards.values

    def around(self, module: Module, node: ast.AST) -> Iterator[Said]:
        """What has come out how where a node runs."""
        yield from self.said(module, self.chains.tests(module, node))

    def said(self, module: Module, tests: Tests, depth: int = DEPTH) -> Iterator[Said]:
        for test, came in tests:
            if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is came:
                yield from self.said(module, [(value, came) for value in test.values], depth)
            elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                yield from self.said(module, [(test.operand, not came)], depth)
            elif isinstance(test, ast.Call) and syntax.text(test.func) == "bool" and len(test.args) == 1:
                yield from self.said(module, [(test.args[0], came)], depth)
            elif isinstance(test, ast.IfExp) and came and off(test.orelse):
                yield from self.said(module, [(test.test, True), (test.body, True)], depth)
            elif isinstance(test, ast.IfExp) and came and off(test.body):
                yield from self.said(module, [(test.test, False), (test.orelse, True)], depth)
            elif not isinstance(test, ast.Constant):
                yield Said(module, test, came)
                if depth and isinstance(test, (ast.Name, ast.Attribute)):
                    yield from self._made_of(module.scope_of(test), test, came, depth - 1)

    def _made_of(self, scope: Scope, flag: ast.Name | ast.Attribute, came: bool, depth: int) -> Iterator[Said]:
        given = self.given(scope, flag)
        if given is None:
            return
        could = [(home, value) for home, value in given if not (came and off(value))]
        if len(could) != 1:
            return
        ((home, value),) = could
        yield from self.said(home, [(value, came)], depth)
        if came:
            yield from self.said(home, self.chains.tests(home, value), depth)

    def given(
        self, scope: Scope, name: ast.Name | ast.Attribute, depth: int = DEPTH
    ) -> list[tuple[Module, ast.expr]] | None:
        """All that a name or attribute is given, each with its file; None where something else gives it a value too."""
        if isinstance(name, ast.Name):
            home = scope.binder(name.id)
            nodes = home.bindings[name.id] if home is not None else []
            plain = (n for n in nodes if isinstance(n, ast.Assign) and len(n.targets) == 1)
            found = [n.value for n in plain if isinstance(n.targets[0], ast.Name)]
            return [(home.module, v) for v in found] if home is not None and len(found) == len(nodes) else None
        holder = self.held(scope, name.value, depth)
        stored: list[tuple[Module, ast.expr]] = []
        for module, target, value, item in self.values.fields(name.attr):
            if self.held(module.scope_of(target), target.value, depth) != holder:
                continue
            if value is None or item:
                return None
            stored.append((module, value))
        return stored or None

    @kept
    def held(self, scope: Scope, expr: ast.expr, depth: int = DEPTH) -> tuple[object, ...]:
        """What an expression names, so that two names of one thing are equal: `params` of a constructor and the
        `self.params` that it becomes."""
        owner = self.program.is_self(scope, expr)
        if owner is not None:
            return ("self", min(f"{c.module.path} {c.qualname}" for c in self.program.family(owner)))
        if isinstance(expr, (ast.Name, ast.Attribute)) and depth:
            followed = isinstance(expr, ast.Name) or self.program.is_self(scope, expr.value) is not None
            given = self.given(scope, expr, depth - 1) if followed else None
            if (
                given is not None
                and len(given) == 1
                and isinstance(given[0][1], (ast.Name, ast.Attribute, ast.Subscript))
            ):
                return self.held(given[0][0].scope_of(given[0][1]), given[0][1], depth - 1)
        if isinstance(expr, ast.Attribute):
            return (*self.held(scope, expr.value, depth), expr.attr)
        if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Constant):
            return (*self.held(scope, expr.value, depth), [expr.slice.value])
        imported = self.program.imported(scope, expr)
        home = scope.binder(expr.id) if isinstance(expr, ast.Name) else scope
        return (imported,) if imported is not None else (home, syntax.text(expr))


def off(value: ast.expr) -> bool:
    """Whether a value counts as false: `None`, `False`, `{}`."""
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return not value.elts
    return not value.keys if isinstance(value, ast.Dict) else syntax.is_false(value)
