"""What a run must have asked for to come by `amp.initialize` at all: `if args.do_train: train(args, model)`.

Where Apex was set up by a function that a run may pass by, an evaluation of such a run was in float32. Ways may go through
several files; an option is asked for where every program that comes to the evaluation declares it.
"""

from __future__ import annotations

import ast
import itertools

from amp_migrate.reading.conditions.tests import opposite
from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.processes import imported
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.switch.flags import asked_around, guard_parts
from amp_migrate.reading.switch.given_again import stored_fields
from amp_migrate.reading.values.sources import Sources

DEPTH = 4  # calls followed up


def on_the_way(project: Project, home: Module, set_up: ast.Call, scope: Scope) -> list[tuple[str, Scope]]:
    """The conditions, each with the scope that it is read in, under which a run that comes to a scope has come by
    `initialize` before; none where it comes by it in any case, or where more than one way leads there."""
    made_in = project.functions.get(home.scope_of(set_up).node)
    there = _function(project, scope)
    if made_in is None or there is None or not _begun(project, there, made_in):
        return []
    starts = _starts(project, there, made_in)
    if starts is None:
        return []
    found: list[tuple[str, Scope]] = []
    asked = [ast.parse(part) for part in asked_around(project, home, set_up)]
    read = {
        n.value.id for a in asked for n in walk(a) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    }
    current = made_in
    for _ in range(DEPTH):
        calls = project.calls.get(current, [])
        if not calls and current is not made_in:
            return found  # code out of sight begins with it
        if len({module.scope_of(call) for module, call in calls}) != 1:
            return []
        told = _without_choices([_asked(project, module, call) for module, call in calls])
        scope_of_calls = calls[0][0].scope_of(calls[0][1])
        if not all(_is_option(project, s, part, scope_of_calls, read) for way in told for part in way for s in starts):
            return []
        known = _known(project, scope_of_calls, there)
        found += [(part, scope_of_calls) for part in _any_of(told) if part not in known]
        caller = project.functions.get(scope_of_calls.node)
        if caller is None or caller is there:
            return found
        current = caller
    return []


def _known(project: Project, scope: Scope, there: Function) -> set[str]:
    """What all calls in a scope which lead to a function ask for already."""
    leading = project.callers(there)
    calls = [
        (m, c)
        for f in leading
        if isinstance(f, Function)
        for m, c in project.calls.get(f, ())
        if m.scope_of(c) is scope
    ]
    asked = [set(asked_around(project, module, call)) for module, call in calls]
    return set.intersection(*asked) if asked else set()


def _asked(project: Project, module: Module, call: ast.Call) -> list[str]:
    """What the tests around a call ask for; a text that is no option for what is not seen."""
    guards = guard_parts(project, module, module.statement(call))
    told = [["..."] if parts is None else parts for guard, parts in guards if "__name__" not in ast.unparse(guard.test)]
    return [part for parts in told for part in parts]


def _without_choices(ways: list[list[str]]) -> list[list[str]]:
    """Ways of which two that differ in one test alone, and go its two ways, are one: `if chunks > 1:` and its `else:`."""
    for way, other in itertools.combinations(ways, 2):
        mine, theirs = [p for p in way if p not in other], [p for p in other if p not in way]
        if len(mine) == len(theirs) == 1 and opposite(mine[0], theirs[0]):
            one = [p for p in way if p in other]
            return _without_choices([one, *(w for w in ways if w not in (way, other))])
    return ways


def _any_of(ways: list[list[str]]) -> list[str]:
    """Conditions of which all hold where those of one way or another do: `(a or b)` of `if a: ... elif b: ...`."""
    alone = {way[0] for way in ways if len(way) == 1}
    short = [[p for p in way if len(way) == 1 or not _denies(p, alone)] for way in ways]
    if any(not way or _denies(way[0], alone) for way in short):
        return []  # some way is open in any case
    short = [way for way in short if not any(set(other) < set(way) for other in short)]
    texts = list(dict.fromkeys(" and ".join(way) for way in short))
    return short[0] if len(texts) == 1 else [f"({' or '.join(texts)})"]


def _denies(part: str, others: set[str]) -> bool:
    """Whether a condition is that another does not hold."""
    tree = ast.parse(part, mode="eval").body
    return isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not) and ast.unparse(tree.operand) in others


def _function(project: Project, scope: Scope) -> Function | None:
    """The function that a scope is, or stands in: of one that is only handed on, as `collate_fn=`, the one around it."""
    around = [f for s in scope.chain() if (f := project.functions.get(s.node)) is not None]
    return next((f for f in around if project.calls.get(f)), around[0] if around else None)


def _starts(project: Project, there: Function, set_up: Function) -> set[Module] | None:
    """The files from whose own lines ways lead to a function, or in which one that nothing in sight knows of begins them as it
    begins those to the set-up; None where code out of sight may call another one on the way, or one again."""
    begun = _begun(project, there)
    sources = project.once(Sources)
    open_ = {f for _, f in begun if f is not None and not sources.only_starts_processes(f)}
    if there in open_ or any(sources.is_value(f) for f in open_):
        return None
    if open_ and not open_ <= {f for _, f in _begun(project, set_up)}:
        return None
    return {module for module, _ in begun}


def _begun(project: Project, there: Function, past: Function | None = None) -> list[tuple[Module, Function | None]]:
    """The lines of files, and the functions that nothing calls, from which ways lead to a function, but for those that come
    by another."""
    ways = project.ways_to([(there.module, there)], *([past] if past is not None else []))
    return [(m, f) for m, f in ways if f is None or (f is not past and not project.calls.get(f))]


def _is_option(project: Project, module: Module, part: str, asked_in: Scope, read: set[str]) -> bool:
    """Whether a condition is an option of the command line, which nothing changes between the two: `args.do_train`. What
    the file imports may declare it; where that is out of sight, the file asks for it itself, of what the set-up is asked for
    as well (`args.fp16`), and nothing gives it a value."""
    tree = ast.parse(part, mode="eval").body
    while isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        tree = tree.operand
    if not isinstance(tree, ast.Attribute) or not isinstance(tree.value, ast.Name):
        return False
    if any(option == tree.attr for m in imported(project, module) for option, _ in declared(m)):
        return True
    own = asked_in.module is module and tree.value.id != asked_in.self_name
    return (
        own and tree.value.id in read and not any(next(stored_fields(project, m, tree), None) for m in project.modules)
    )
