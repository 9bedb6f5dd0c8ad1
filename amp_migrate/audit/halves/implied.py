"""Methods that run where no call names them: a property, `meter[0]`, `for value in meter`, `meter()`."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from amp_migrate.audit.halves.called import ALIKE
from amp_migrate.audit.halves.closures import Closures
from amp_migrate.audit.halves.tensors import ALL_TOLD, NOT_TOLD, UNKNOWN, Value, join, ways
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Scope

PROPERTIES = ("property", "cached_property")


class Implied(Closures):
    """What they give in one body."""

    def implied(self, on: ast.expr, name: str) -> Value:
        """What a method or a property of an object gives, where it is seen how that is made."""
        program = self.halves.program
        if not program.methods_named(name):
            return UNKNOWN
        scope = self.module.scope_of(on)
        owner = program.is_self(scope, on)
        found = program.methods(owner, name) if owner is not None else self.halves.values.methods(scope, on, name)
        runs = [f for f in found if f.bound and _is_property(f) is not name.startswith("__")]
        return join(ways(self.run_implied(f) for f in runs[:ALIKE])) if runs else UNKNOWN

    def run_implied(self, function: Function) -> Value:
        told = self.in_region(ALL_TOLD if self.halves.holds(function.owner) else NOT_TOLD)
        return self.halves.call(function, {}, self.inside, told)

    def object(self, expr: ast.Call, scope: Scope, by_place: list[Value], named: Mapping[str | None, Value]) -> Value:
        value = super().object(expr, scope, by_place, named)
        return self.implied(expr.func, "__call__") if value == UNKNOWN and not by_place and not named else value


def _is_property(function: Function) -> bool:
    return any(syntax.last(d) in PROPERTIES for d in function.node.decorator_list)
