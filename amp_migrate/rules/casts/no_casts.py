"""`with amp.disable_casts():` becomes a region without autocast, and stays one."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import WITH_NODES, Module
from amp_migrate.reading.program.tree import reached, walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.reading.values.tensors import loads, read_kinds
from amp_migrate.rules.casts.text import cast_lines
from amp_migrate.rules.migration import Migration

CONVERSIONS = ("float", "half", "bfloat16", "double", "to", "type", "long", "int", "bool", "detach")


def convert_region(m: Migration, site: Site) -> None:
    """Replace one `disable_casts()`.

    Raises Blocked where it is not called in sight.
    """
    module, call = site.module, site.call
    if call is None:
        raise Blocked.at(site, "AMP516", "passed on: where casts are disabled is not in sight")
    edits = m.edit(module)
    torch = m.torch(module, site.scope)
    edits.replace(call, m.off("autocast", module, site.scope))
    holder = _with(module, call)
    kinds = read_kinds(module, holder.body) if holder is not None else {}
    sure = {
        name: kind
        for name, kind in kinds.items()
        if holder is not None and kind == "float" and not _converted(module, holder, name)
    }
    message = "a region without autocast"
    if holder is not None and sure:
        edits.insert_before(holder.body[0], *cast_lines(sure, "float", torch))
        message += f" on float32 inputs: {', '.join(sure)}"
    else:
        message += "; tensors made under autocast come in as float16: cast them where weights meet them"
    m.output.done(module, call, "AMP514", site.construct, message, "look")


def _with(module: Module, call: ast.Call) -> ast.With | ast.AsyncWith | None:
    item = module.parents.get(call)
    holder = module.parents.get(item) if isinstance(item, ast.withitem) else None
    return holder if isinstance(holder, WITH_NODES) else None


def _converted(module: Module, holder: ast.With | ast.AsyncWith, name: str) -> bool:
    """Whether every read of a name in a region converts it already: `x.to(torch.float)`."""
    return all(
        isinstance(parent := module.parents[use], ast.Attribute) and parent.attr in CONVERSIONS
        for use in loads(holder.body, name)
    )


# -- autocast regions that would switch it on again ------------------------------------------------------------------


def keep_regions_out(m: Migration) -> None:
    """Take out the autocast regions inside `disable_casts`, and in functions that are only called from there.

    Raises Blocked where a function is called both with casts and without.
    """
    holders = [
        (site.module, holder)
        for site in m.other_sites("disable_casts")
        if site.call is not None and m.live(site.module, site.call)
        for holder in [_with(site.module, site.call)]
        if holder is not None
    ]
    if not holders:
        return
    inside: set[ast.AST] = {holder for _, holder in holders}

    def called(places: Iterable[ast.AST]) -> Iterable[Function]:
        calls = (n for place in places for n in walk(place) if isinstance(n, ast.Call))
        return (f for call in calls for f in m.project.resolved.get(call, ()) if f.name != "__init__")

    for function in reached(called(holder for _, holder in holders), lambda f: called([f.node])):
        wraps = m.output.edits[function.module].wraps if function.module in m.output.edits else []
        mine = [w for w in wraps if any(a is function.node for a in function.module.ancestors(w.first))]
        if not mine:
            continue
        if not _only_inside(m, function, inside, set()):
            module, holder = holders[0]
            raise Blocked(
                module,
                holder.items[0].context_expr,
                "AMP516",
                "amp.disable_casts",
                f"{function.name} runs both with casts and without: hand it the switch for autocast",
            )
        inside.add(function.node)
    for module, edits in m.output.edits.items():
        out = [
            w
            for w in edits.wraps
            if any(a in inside for a in module.ancestors(w.first)) or (w.first is w.last and w.first in inside)
        ]
        for wrap in out:
            edits.wraps.remove(wrap)
            found = m.output.findings.get(module, [])
            found[:] = [f for f in found if not (f.code == "AMP501" and f.line == wrap.first.lineno)]


def _only_inside(m: Migration, function: Function, inside: set[ast.AST], visited: set[Function]) -> bool:
    """Whether every call of a function that may run under autocast stands in a region without it."""
    visited.add(function)
    for module, call in m.project.calls.get(function, ()):
        ancestors = list(module.ancestors(call))
        if any(a in inside for a in ancestors) or _counterpart(ancestors, inside, call):
            continue
        caller = m.project.function_of(module, call)
        if caller is None or caller in visited or not m.project.calls.get(caller):
            return False
        if not _only_inside(m, caller, inside, visited):
            return False
    return True


def _counterpart(ancestors: list[ast.AST], inside: set[ast.AST], call: ast.Call) -> bool:
    """Whether a call is the plain branch of `if use_amp: with amp.disable_casts(): ... else: ...`."""
    return any(
        isinstance(a, ast.If) and any(s in inside for s in a.body) and any(call in set(walk(s)) for s in a.orelse)
        for a in ancestors
    )
