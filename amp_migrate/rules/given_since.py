"""Whether what a switch asks may be another thing once a set-up has asked for it, by where mixed precision is set up."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from amp_migrate.reading.program.module import LOOP_NODES, Module, Scope
from amp_migrate.reading.program.processes import imported
from amp_migrate.reading.switch.given_again import given_again
from amp_migrate.reading.units.unit import Init
from amp_migrate.reading.values.sources import Sources

if TYPE_CHECKING:
    from amp_migrate.rules.migration import Migration

DEPTH = 4  # calls followed up


class GivenSince:
    """The answers for one unit's migration."""

    def __init__(self, m: Migration) -> None:
        self.m, self.unit, self.project = m, m.unit, m.project
        self._known: dict[tuple[str, Scope, tuple[Init, ...]], bool] = {}

    def __call__(self, part: str, scope: Scope, since: Sequence[Init] = ()) -> bool:
        """Whether what a condition names may be another thing once it has been asked for at the set-up."""
        inits = tuple(since or self.unit.inits)
        if (part, scope, inits) not in self._known:
            before = partial(self._is_before, inits=inits)
            self._known[part, scope, inits] = given_again(self.project, part, scope, before)
        return self._known[part, scope, inits]

    def _is_before(self, module: Module, node: ast.AST, holder: ast.expr | None, inits: Sequence[Init]) -> bool:
        """Whether no set-up comes before a place. An object is made before its methods run, and a file is loaded before its
        functions are."""
        scope = module.scope_of(node)
        function = self.project.functions.get(scope.node)
        fresh = isinstance(holder, ast.Name) and holder.id == scope.self_name
        if fresh and function is not None and function.name == "__init__":
            own = [i.stmt for i in inits if i.site.scope is scope]
            return all(module.statement(node).lineno < stmt.lineno for stmt in own)
        if scope.is_module and not self.m.set_up.runs_at_load(module):
            return all(module in (i.module, *imported(self.project, i.module)) for i in inits)
        return self._is_above(module, node, inits, 0) or self.m.set_up.never_at(module, node)

    def _is_above(self, module: Module, node: ast.AST, inits: Sequence[Init], depth: int) -> bool:
        """Whether a place is come by on the way to a set-up alone, which asks after it whenever it has been come by."""
        scope, stmt = module.scope_of(node), module.statement(node)
        loops = {a for a in module.ancestors(node) if isinstance(a, LOOP_NODES)}
        for init in inits:
            if init.site.scope is scope and stmt.lineno < init.stmt.lineno:
                return loops.issubset(module.ancestors(init.stmt))
        function = self.project.functions.get(scope.node)
        calls = self.project.calls.get(function, ()) if function is not None and depth < DEPTH else ()
        if function is None or self.project.once(Sources).is_value(function):
            return False
        return bool(calls) and all(self._is_above(where, call, inits, depth + 1) for where, call in calls)
