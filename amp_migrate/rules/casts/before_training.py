"""Where a cast of weights stands: before the first loss is scaled, in a function that trains, under the switch of mixed
precision alone."""

from __future__ import annotations

import ast
from collections.abc import Collection

from amp_migrate.reading.program.module import LOOP_NODES, Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.switch.elsewhere import expanded, through_field
from amp_migrate.reading.switch.flags import init_flag
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.setup.when_on import asked_at, ways_to


def sets_up(m: Migration, module: Module, call: ast.Call) -> bool:
    """Whether a statement belongs to what happens once, before the first loss is scaled."""
    scope = module.scope_of(call)
    if any(isinstance(a, LOOP_NODES) for a in module.ancestors(call)) or _copies(call):
        return False
    for init in m.unit.inits:
        if init.site.scope is scope:
            loops = [a for x in m.unit.losses if x.module is module for a in module.ancestors(x.call)]
            first = min((a.lineno for a in loops if isinstance(a, LOOP_NODES)), default=None)
            calls = [c.lineno for c, s in module.calls if s is scope and trains(m, c)]
            limits = [*calls, *([first] if first is not None and scope is _scope_of_losses(m, module) else [])]
            if call.lineno < min(limits, default=call.lineno + 1):
                return True
    function = m.project.function_of(module, call)
    return function is not None and any(function is f for i in m.unit.inits for f in m.unit.before(i))


def _scope_of_losses(m: Migration, module: Module) -> object:
    scopes = {module.scope_of(x.call) for x in m.unit.losses if x.module is module}
    return scopes.pop() if len(scopes) == 1 else None


def trains(m: Migration, call: ast.Call) -> bool:
    """Whether a call runs a function that scales a loss."""
    scaling = set(m.unit.functions())
    return any(f in scaling for f in m.project.resolved.get(call, ()))


def _copies(call: ast.Call) -> bool:
    """Whether what becomes half is a copy: `copy.deepcopy(model).half()`."""
    return any("copy" in ast.unparse(n.func) for n in walk(call.func) if isinstance(n, ast.Call))


def same_switch(m: Migration, module: Module, call: ast.AST, more: Collection[str] = ()) -> bool:
    """Whether the model becomes half just where mixed precision is on, on every way there: that is then what it was for. `more`
    is asked besides."""
    besides = {(part,) for part in more}
    asked: set[str] = set()
    guards: list[set[str]] = []  # around each initialize
    for init in m.unit.inits:
        around = asked_at(m, init.module, init.stmt)
        guards.append({s for p in around for s in (p, expanded(init.site.scope, p))})
        asked |= guards[-1] | set(init_flag(m.project, init).parts or ())
        level = init.arguments.get("opt_level")
        asked.update([init.module.source(level)] if isinstance(level, (ast.Name, ast.Attribute)) else [])
        there = module.scope_of(call)
        fields = (through_field(m.project, text, init.site.scope, there) for text in asked)
        asked |= {field for field in fields if field is not None}
    return all(
        all(any(_one_of(part, asked) for part in own) for own in way) and (bool(way) or not any(guards))
        for way in (way | besides for way in ways_to(m, module, call))
    )


def _one_of(part: str, asked: set[str]) -> bool:
    return any(part in (a, f"bool({a})") or part.startswith(f"{a} ==") for a in asked)
