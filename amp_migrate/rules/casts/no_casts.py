"""`with amp.disable_casts():` becomes a region without autocast, and stays one."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.conditions.conjunctions import conjunction
from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import WITH_NODES, Module
from amp_migrate.reading.program.tree import reached, walk
from amp_migrate.reading.regions.uncast import Uncast, uncast
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.unit import Blocked, NeverOn
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
    found = uncast(m.project, module, call)
    if found is None:
        raise Blocked.at(site, "AMP516", "where what it gives is entered, and casts are disabled, is not in sight")
    edits = m.edit(module)
    _otherwise(m, site, found)
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


def _otherwise(m: Migration, site: Site, found: Uncast) -> None:
    """Have what runs with casts where a test says so in a region then: it gets none of its own.

    Raises Blocked where no region can be put there.
    """
    for module, choice in found.choices:
        off = site.call is not None and any(a is choice.body for a in (site.call, *module.ancestors(site.call)))
        other = choice.orelse if off else choice.body
        header = _switched(m, module, choice)
        if header is None or (off and header.endswith(f" enabled={module.source(choice.test)})")):
            continue
        if not isinstance(other, ast.Call) or not (module.qualify(other.func) or "").endswith("nullcontext"):
            raise _decided(site)
        m.edit(module).replace(other, header)
    for module, guard in found.guards:
        header = _switched(m, module, guard.test)
        if header is not None and not header.endswith(f" enabled={module.source(guard.test)})"):
            raise _decided(site)
    if not all(_asked_anyway(m, *test) for test in found.decided):
        raise _decided(site)


def _asked_anyway(m: Migration, module: Module, guard: ast.If, came: bool) -> bool:
    """Whether a test only asks whether mixed precision is on: where it is not, there are no casts to be disabled."""
    parts = conjunction(module, availability(m.project, module), guard.test, negate=not came)
    seen = m.switch.read_in(module.scope_of(guard.test))
    return parts is not None and {*parts} <= {*(seen or "").split(" and ")}


def _switched(m: Migration, module: Module, node: ast.AST) -> str | None:
    """A region; None where mixed precision is never on."""
    try:
        return m.autocast(module, node)
    except NeverOn:
        return None


def _decided(site: Site) -> Blocked:
    return Blocked.at(
        site, "AMP516", "whether casts are disabled here is decided at run time; write one region for each"
    )


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


Call = tuple[Module, ast.Call]


def run_without(m: Migration, roots: set[ast.AST]) -> dict[Function, list[Call]]:
    """The functions that run inside of `disable_casts`, which some nodes are, each with the calls, nearest to where no such
    region is around any of them, by which it runs with casts, too: none where it never does."""
    within = list(reached(_called(m, roots), lambda f: _called(m, [f.node])))
    return {f: _with_casts(m, f, roots, set(within), set()) for f in within}


def without_casts(m: Migration) -> set[ast.AST]:
    """The nodes in which casts are disabled."""
    sites = (s for s in m.other_sites("disable_casts") if s.call is not None and m.live(s.module, s.call))
    found = (uncast(m.project, s.module, s.call) for s in sites if s.call is not None)
    return {root for one in found if one is not None for root in one.roots}


def _called(m: Migration, places: Iterable[ast.AST]) -> Iterable[Function]:
    calls = (n for place in places for n in walk(place) if isinstance(n, ast.Call))
    return (f for call in calls for f in m.project.resolved.get(call, ()) if f.name != "__init__")


def _with_casts(
    m: Migration, function: Function, holders: set[ast.AST], within: set[Function], seen: set[Function]
) -> list[Call]:
    """The calls that lead to a function and may be under casts: not what stands in a region without them, nor what runs where
    they were never set up."""
    seen.add(function)
    found: list[Call] = []
    for module, call in m.project.calls.get(function, ()):
        ancestors = list(module.ancestors(call))
        if any(a in holders for a in ancestors) or _counterpart(ancestors, holders, call):
            continue
        if m.set_up.never_at(module, call):
            continue
        caller = m.project.function_of(module, call)
        if caller is None or caller not in within:
            found.append((module, call))
        elif caller not in seen:
            found += _with_casts(m, caller, holders, within, seen)
    return found


def hand_to_callers(m: Migration, functions: Iterable[Function], without: dict[Function, list[Call]]) -> None:
    """Put the calls by which functions run with casts, which run without them, too, in regions: theirs would switch the casts
    on again.

    Raises Blocked where no region can be put there.
    """
    for function in functions:
        for module, call in without[function]:
            stmt = module.statement(call)
            edits = m.edit(module)
            if any(w.first is stmt for w in edits.wraps) or _in_region(m, module, stmt):
                continue
            header = _region(m, function, module, call, stmt)
            if header is not None:
                edits.wrap(stmt, stmt, header)
                runs = f"what {function.name} runs is under autocast by this call, and not where amp.disable_casts() is around it"
                m.output.note(module, stmt, "AMP501", "torch.autocast", runs, "look")


def _region(m: Migration, function: Function, module: Module, call: ast.Call, stmt: ast.stmt) -> str | None:
    """The region for a call; None where mixed precision is never on there."""
    try:
        if isinstance(stmt, (ast.Expr, ast.Assign, ast.Return)):
            return _switched(m, module, call)
    except Blocked as failure:
        raise _both(module, call, function) from failure
    raise _both(module, call, function)


def _both(module: Module, call: ast.Call, function: Function) -> Blocked:
    message = (
        f"{function.name} runs with casts by this call and without them elsewhere: hand it the switch for autocast"
    )
    return Blocked(module, call, "AMP516", "amp.disable_casts", message)


def _in_region(m: Migration, module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement stands in a region that is written."""
    around = {stmt, *module.ancestors(stmt)}
    wraps = m.output.edits[module].wraps if module in m.output.edits else ()
    blocks = ((w, module.block(w.first)) for w in wraps)
    return any(around & set(b[b.index(w.first) : b.index(w.last) + 1]) for w, b in blocks)


def keep_regions_out(m: Migration) -> None:
    """Take out the autocast regions inside `disable_casts`."""
    inside = without_casts(m)
    for module, edits in m.output.edits.items() if inside else ():
        out = [
            w
            for w in edits.wraps
            if any(a in inside for a in module.ancestors(w.first)) or (w.first is w.last and w.first in inside)
        ]
        for wrap in out:
            edits.wraps.remove(wrap)
            found = m.output.findings.get(module, [])
            found[:] = [f for f in found if not (f.code == "AMP501" and f.line == wrap.first.lineno)]


def _counterpart(ancestors: list[ast.AST], inside: set[ast.AST], call: ast.Call) -> bool:
    """Whether a call is the plain branch of `if use_amp: with amp.disable_casts(): ... else: ...`."""
    return any(
        isinstance(a, ast.If) and any(s in inside for s in a.body) and any(call in set(walk(s)) for s in a.orelse)
        for a in ancestors
    )
