"""Functions that are defined within another and called there: they read its variables, and leave in some what it goes on
with, `def closure(): nonlocal loss; loss = criterion(out, y)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from amp_migrate.audit.halves.calls import Calls
from amp_migrate.audit.halves.given import Given, given_to
from amp_migrate.audit.halves.tensors import NOT_TOLD, UNKNOWN, Env, Value
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Scope

DEEP = 5


class Closures(Calls):
    """What calls of them give in one body, and leave in it."""

    def block(self, body: list[ast.stmt]) -> bool:
        """Run statements; whether they surely leave."""
        raise NotImplementedError

    def result(self) -> Value:
        """What was returned."""
        raise NotImplementedError

    def run_in(
        self,
        function: Function,
        expr: ast.Call,
        given: list[Value],
        named: dict[str | None, Value],
        passed: Mapping[str, Given] | None = None,
    ) -> Value:
        if not _within(function, self.module.scope_of(expr)) or function.module is not self.module:
            return super().run_in(function, expr, given, named, passed)
        if function.node in self.halves.entered or len(self.halves.entered) > DEEP:
            return UNKNOWN
        own = set(function.scope.bindings) - function.scope.outer
        around = {text: value for text, value in self.env.items() if _name(text) not in own}
        env: Env = dict(zip((p.arg for p in function.parameters), given, strict=False))
        env |= {name: value for name, value in named.items() if name is not None}
        saved = self.env, self.returned, self.inside, self.told, self.given, self.bound
        read = {n.id for n in syntax.every(function.node, ast.Name)} - own
        half = any(v.followed or v.origin for v in env.values()) or any(
            v.followed for text, v in around.items() if _name(text) in read
        )
        region = self.halves.regions.of_function(function)
        if passed is None:
            passed = given_to(self.halves.program, function, self.module.scope_of(expr), expr, self.unbound())
        self.env, self.returned = {**around, **env}, []
        self.inside = self.inside or (region is not None and not region.off)
        self.told = self.in_region(self.told if half or self.halves.below else NOT_TOLD)
        self.given = {**{k: v for k, v in self.given.items() if k not in own}, **passed}
        self.bound = self.bound - own
        self.halves.entered.add(function.node)
        self.block(function.node.body)
        value, left = self.result(), self.env
        self.halves.entered.discard(function.node)
        before, self.returned, self.inside, self.told, self.given, self.bound = saved
        self.env = {text: value for text, value in left.items() if _name(text) not in own}
        self.env |= {text: value for text, value in before.items() if _name(text) in own}
        return value


def _within(function: Function, scope: Scope) -> bool:
    """Whether a function is defined in the one whose code calls it, or in one around that."""
    holder = function.scope.parent
    around: Scope | None = scope
    while around is not None and around is not holder:
        around = around.parent
    return around is not None and around.function is not None


def _name(text: str) -> str:
    """The variable that something is an entry or an attribute of: `out` of `out["logits"]`."""
    return re.split(r"[.\[]", text, maxsplit=1)[0]
