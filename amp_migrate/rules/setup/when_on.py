"""Whether a place only runs with mixed precision, or only without: what is asked there, and where `initialize` stands."""

from __future__ import annotations

import ast

from amp_migrate.reading.conditions.tests import opposite
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.scaler.guards import is_main_guard
from amp_migrate.reading.switch.flag import Flag
from amp_migrate.reading.switch.flags import chosen_parts, flag_in_call, guard_parts, init_flag
from amp_migrate.rules.migration import Migration

UNTOLD = "..."  # a condition that cannot be read where a way has come to
DEPTH = 4  # calls followed up
Asked = tuple[str, ...]  # a condition as it reads in each function that a way comes by, the innermost first


def never_on(m: Migration, module: Module, node: ast.AST) -> bool:
    """Whether a node only runs without mixed precision: in the `else` of the switch that `initialize` stands under."""
    on = _asked_to_set_up(m)
    return all(
        all(any(opposite(part, p) for part in asked for own in way for p in own) for asked in on) and bool(way)
        for way in ways_to(m, module, node)
    )


def only_on(m: Migration, module: Module, node: ast.AST) -> bool:
    """Whether a node only runs with mixed precision: under the switch that `initialize` stands under."""
    on = _asked_to_set_up(m)
    return all(any(all(not asked.isdisjoint(own) for asked in on) for own in way) for way in ways_to(m, module, node))


def ways_to(m: Migration, module: Module, node: ast.AST, below: frozenset[Function] = frozenset()) -> list[set[Asked]]:
    """What each way to a node asks, from the function that sets Apex up, or else from where the way starts."""
    own: set[Asked] = {(part,) for part in asked_at(m, module, node)}
    function = m.project.function_of(module, node)
    calls = m.project.calls.get(function, []) if function is not None else []
    if (
        function is None
        or function in below
        or len(below) == DEPTH
        or any(function.scope is i.site.scope for i in m.unit.inits)
    ):
        return [own]
    found: list[set[Asked]] = []
    for where, call in calls:
        for way in ways_to(m, where, call, below | {function}):
            read = _read_in(m, own, function, where, call)
            if read is not None:
                found.append(read | way)
    return found or [own]


def _read_in(m: Migration, own: set[Asked], function: Function, module: Module, call: ast.Call) -> set[Asked] | None:
    """What is asked in a function as one that calls it would say it, too; None where a call does not come by that."""
    found: set[Asked] = set()
    for asked in own:
        flag = Flag(function.scope, asked[-1:])
        told = flag_in_call(m.project, flag, function, module, call, module.scope_of(call))
        if told is not None and told.never:
            return None
        found |= {(*asked, part) for part in ((UNTOLD,) if told is None else told.parts or ())}
    return found


def asked_at(m: Migration, module: Module, node: ast.AST) -> list[str]:
    """What the tests around a node in its function ask, but for whether a file is the one that is run."""
    guards = guard_parts(m.project, module, module.statement(node))
    asked = [parts for guard, parts in guards if not is_main_guard(guard)]
    asked += chosen_parts(m.project, module, node)
    return [p for parts in asked for p in (parts if parts is not None else (UNTOLD,))]


def _asked_to_set_up(m: Migration) -> list[set[str]]:
    """What is asked before each `initialize` of the unit."""
    return [
        set(init_flag(m.project, i).parts or ()) | set(asked_at(m, i.module, i.stmt)) - {UNTOLD} for i in m.unit.inits
    ]
