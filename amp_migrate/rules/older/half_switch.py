"""Whether a model is made half in just the runs in which its optimizer is wrapped. Reported as AMP720: see `fp16_utils.py`."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.switch.elsewhere import expanded
from amp_migrate.reading.switch.flags import asked_around
from amp_migrate.reading.units.unit import Blocked, Init
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.setup.when_on import asked_at, ways_to


def same_switch(m: Migration, module: Module, call: ast.Call, name: str) -> None:
    """The model is made half under the condition under which the optimizer is wrapped, under part of it, or under more.

    Raises Blocked where it is made half in other cases as well: those would train in float16 without a scaler.
    """
    each = [asked_around(m.project, i.module, i.stmt) for i in m.unit.inits]
    each += [_as_called(m, module, i, parts) for i, parts in zip(m.unit.inits, each, strict=True)]
    copied = [[expanded(i.site.scope, p) for p in parts] for i, parts in zip(m.unit.inits, each, strict=False)]
    copied += _besides(m, each)
    asked = {part for parts in (*each, *copied) for part in parts}
    apart: dict[str, None] = {}
    for way in ways_to(m, module, call):
        own = {_as_wrapped(m, module, call, next((p for p in read if p in asked), read[0]), asked) for read in way}
        if own - asked and asked and not any(parts and own.issuperset(parts) for parts in (*each, *copied)):
            apart[" and ".join(sorted(own))] = None
    if apart:
        wrapped = " or ".join(sorted({" and ".join(reversed(parts)) for parts in each}))
        message = (
            f"the model is made half where {', or where '.join(apart)}; the optimizer is wrapped where {wrapped}, which is not "
            "seen to be so in each of these runs. Bring the two together first"
        )
        raise Blocked(module, call, "AMP720", name, message)


def _besides(m: Migration, each: list[list[str]]) -> list[list[str]]:
    """The conditions under which the optimizer is wrapped, less those that all training stands under, too: where they do not
    hold nothing is trained, in whatever precision the weights are."""
    around = [set(asked_at(m, s.module, s.call)) for s in m.unit.steps]
    trained = set.intersection(*around) if around else set()
    return [rest for parts in each if (rest := [p for p in parts if p not in trained]) and len(rest) < len(parts)]


def _as_wrapped(m: Migration, module: Module, call: ast.Call, part: str, asked: set[str]) -> str:
    """A condition as it is asked where the optimizer is wrapped: `args.fp16`, of an object that is `self.args` there."""
    mine = ast.parse(part, mode="eval").body
    for other in asked - {part}:
        theirs = ast.parse(other, mode="eval").body
        if not (isinstance(mine, ast.Attribute) and isinstance(theirs, ast.Attribute) and mine.attr == theirs.attr):
            continue
        for init in m.unit.inits:
            kept = _asked_of(m, init.module, init.stmt, other)
            here = _asked_of(m, module, module.statement(call), part)
            if kept is not None and here is not None and m.project.origins([kept]) & m.project.origins([here]):
                return other
    return part


def _asked_of(m: Migration, module: Module, stmt: ast.stmt, part: str) -> Slot | None:
    """What an `if` around a statement reads a field of, where that is what it asks."""
    for around in module.ancestors(stmt):
        for node in walk(around.test) if isinstance(around, ast.If) else ():
            if isinstance(node, ast.Attribute) and ast.unparse(node) == part:
                return m.project.slot(module, node.value)
    return None


def _as_called(m: Migration, module: Module, init: Init, parts: list[str]) -> list[str]:
    """Conditions in a function, as a file that calls it would write them: `fp16`, a parameter, is what every call there
    gives it."""
    function = m.project.functions.get(init.site.scope.node)
    if function is None:
        return parts
    calls = [(where, call) for where, call in m.project.calls.get(function, []) if where is module]
    found: list[str] = []
    for part in parts:
        given = {
            where.source(value)
            for where, call in calls
            for name, value in m.project.arguments(function, call)
            if name == part
        }
        found.append(given.pop() if part in function.scope.params and len(given) == 1 else part)
    return found
