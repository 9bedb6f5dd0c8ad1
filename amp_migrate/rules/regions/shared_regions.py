"""Code that several programs share has one region, decided by the first of them: the others hand their switch to it.

A test script and a training script run the model in one function. The region there takes its switch as a parameter that
may be left out, so a program that leaves it out would run in float32.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.findings import Code, Example
from amp_migrate.reading.conditions.conjunctions import conjuncts
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.tree import reached
from amp_migrate.reading.sites.apex import find_sites
from amp_migrate.reading.units.unit import Blocked, NeverOn
from amp_migrate.rules.handover.scaler_passing import add_keyword
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions import shared_scalers

CODES = (
    Code(
        "AMP517",
        "A region that another program switches",
        "torch.autocast",
        apex="initialize decides for the whole process, so code that two programs share runs as either asks.",
        native="One torch.autocast region serves both.",
        why="The region was written for the program that trains. Where it takes its switch as a parameter, this program "
        "hands its own over; where it reads another condition, see that both mean the same.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.autocast",),
        examples=(
            Example(
                "predictions = inference(model, loader)",
                "predictions = inference(model, loader, use_amp=use_mixed_precision)",
            ),
        ),
    ),
)


def scopes(m: Migration) -> list[Scope]:
    """The scopes that run this unit's models in regions of an earlier unit."""
    return [s for s in m.regions.shared() if s in m.earlier.regions]


def apply(m: Migration) -> list[Blocked]:
    """Hand the switch to what takes one; the calls from which it cannot be handed over."""
    unreached: list[Blocked] = []
    for function, name in m.earlier.switches.items():
        unreached += hand(m, name, ((function, *at) for at in m.project.calls.get(function, ())))
    for scope in scopes(m):
        _compare(m, scope)
    return unreached


def hand(m: Migration, name: str, calls: Iterable[tuple[Function, Module, ast.Call]]) -> list[Blocked]:
    """Hand the switch to calls of functions that take one by a name; the reasons why some cannot be reached."""
    unreached: list[Blocked] = []
    for function, module, call in calls:
        if not m.regions.forwards.has_forward(function):
            continue
        if (call, name) in m.earlier.given | m.output.given or module not in m.unit.reach:
            continue
        scope = module.scope_of(call)
        # Where another program is set up, that hands it over.
        elsewhere = m.regions.taken(scope) and scope not in m.earlier.regions
        if not m.live(module, call) or elsewhere or m.set_up.never(scope) or m.set_up.never_at(module, call):
            continue
        try:
            enabled = m.switch.evaluated(scope, call) or m.switch.at(module, call)
        except NeverOn:
            continue
        except Blocked as failure:
            unreached.append(failure)
            continue
        m.output.given.add((call, name))
        add_keyword(m, module, call, name, enabled or "True")
        m.output.note(
            module,
            call,
            "AMP517",
            "torch.autocast",
            f"{function.name} runs the model in a region that it shares with another program: it is handed {name}",
            "as-is",
        )
    return unreached


def _compare(m: Migration, scope: Scope) -> None:
    """Say where a region reads a condition that is not this unit's."""
    function = m.project.functions.get(scope.node)
    theirs = _enabled(m.earlier.regions[scope])
    if function is not None and theirs == m.earlier.switches.get(function):
        return
    setters = [init for init in m.unit.inits if _comes_there(m, init.site.scope, scope)]
    if theirs == "True" or not setters:
        return
    alone = not any(_meet(m, init.site.scope, other.site.scope) for init in setters for other in m.unit.beside)
    if alone and shared_scalers.set_for(m, scope, setters):  # else it would take the place of one that is trained with
        for init in setters:
            where = f"{scope.name or scope.module.display} ({scope.module.display})"
            message = f"{where} runs the model in a region that asks {m.set_for[init]}, which is set here"
            m.output.note(init.module, init.call, "AMP517", "torch.autocast", message, "as-is")
        return
    if theirs in m.earlier.fields and m.switch.is_kept_as(scope, getattr(scope.node, "body", [scope.node])[0], theirs):
        return
    mine, ways = m.switch.read_in(scope), m.switch.on_ways(scope)
    if ways is not None and all(_written(*way) == _written(theirs) for way in ways):
        return
    if mine is None or ast.unparse(ast.parse(mine)) != theirs:
        m.output.note(
            m.unit.inits[0].module,
            m.unit.inits[0].call,
            "AMP517",
            "torch.autocast",
            f"{scope.name or scope.module.display} ({scope.module.display}) runs the model in a region that another "
            f"set-up of mixed precision switches, on where {theirs}: see that it means the same here",
            "review",
        )


def _written(*conditions: str) -> set[str]:
    """The parts of what all of some conditions ask, as Python writes them."""
    return {ast.unparse(part) for text in conditions for part in conjuncts(ast.parse(text, mode="eval").body)}


def _comes_there(m: Migration, start: Scope, scope: Scope) -> bool:
    """Whether a run that comes by a set-up may come to a scope that has none of its own on the way."""
    above = _above(m, start, frozenset())
    elsewhere = frozenset(
        site.scope
        for module in m.project.modules
        if m.project.may_name_apex(module)
        for site in find_sites(m.project, module)
        if site.name == "apex.amp.initialize" and site.scope not in above
    )
    return _meet(m, start, scope, elsewhere)


def _meet(m: Migration, start: Scope, scope: Scope, without: frozenset[Scope] = frozenset()) -> bool:
    """Whether a run that comes by a set-up may come to another scope too, by none of some others."""
    above, below = _above(m, start, frozenset()), _above(m, scope, without)
    return any(_parts(m, at, below, above & below) for at in above & below)


def _parts(m: Migration, at: Scope, below: set[Scope], both: set[Scope]) -> bool:
    """Whether a scope that leads both to a set-up and to another scope may come to that once it has set up: not in the branch
    beside it. What leads to both is asked itself."""
    found = [(c, f.scope) for c, s in at.module.calls if s is at for f in m.project.callees(at.module, c)]
    calls = [(c, to) for c, to in found if to in below]
    return not calls or any(to not in both and not m.set_up.passed_by(at.module, c) for c, to in calls)


def _above(m: Migration, scope: Scope, without: frozenset[Scope]) -> set[Scope]:
    """A scope and those that call it, through others too, up to those that are left out."""

    def callers(at: Scope) -> Iterator[Scope]:
        function = m.project.functions.get(at.node)
        calls = m.project.calls.get(function, []) if function is not None else []
        if function is not None and function.cls is not None and not calls:  # of objects that are not known there
            calls = [(o, call) for o in m.unit.reach for call, _ in o.method_calls.get(function.name, ())]
        around = [at.parent] if at.parent is not None and at.parent.is_function else []
        yield from (s for s in (*around, *(module.scope_of(c) for module, c in calls)) if s not in without)

    return set(reached([scope] if scope not in without else [], callers))


def _enabled(header: str) -> str:
    """The condition of an autocast call."""
    call = ast.parse(header, mode="eval").body
    assert isinstance(call, ast.Call)
    return next((ast.unparse(k.value) for k in call.keywords if k.arg == "enabled"), "True")
