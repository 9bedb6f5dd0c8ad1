"""Whether a place only runs with mixed precision, or only without: what is asked there, and where `initialize` stands."""

from __future__ import annotations

import ast

from amp_migrate.reading.conditions.tests import opposite
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.switch.flags import guard_parts, init_flag
from amp_migrate.rules.migration import Migration


def never_on(m: Migration, module: Module, node: ast.AST) -> bool:
    """Whether a node only runs without mixed precision: in the `else` of the switch that `initialize` stands under."""
    own = _asked_at(m, module, module.statement(node))
    return bool(own) and all(any(opposite(part, p) for part in asked for p in own) for asked in _asked_to_set_up(m))


def only_on(m: Migration, module: Module, node: ast.AST) -> bool:
    """Whether a node only runs with mixed precision: under the switch that `initialize` stands under."""
    own = _asked_at(m, module, module.statement(node))
    return any(all(part in asked for asked in _asked_to_set_up(m)) for part in own)


def _asked_at(m: Migration, module: Module, stmt: ast.stmt) -> set[str]:
    return {p for _, parts in guard_parts(m.project, module, stmt) for p in parts or ()}


def _asked_to_set_up(m: Migration) -> list[set[str]]:
    """What is asked before each `initialize` of the unit."""
    return [set(init_flag(m.project, i).parts or ()) | _asked_at(m, i.module, i.stmt) for i in m.unit.inits]
