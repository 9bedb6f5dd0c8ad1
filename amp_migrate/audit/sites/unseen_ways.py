"""Networks that run on ways which are not seen to come by a set-up of Apex, and in no region now."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from amp_migrate.audit.doubts import MOST, Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.sites.disabled import DISABLED, was_float32
from amp_migrate.audit.sites.float_methods import float_method
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.mentioned import Mentioned, in_runs_before
from amp_migrate.audit.sites.networks import named, own_runs
from amp_migrate.audit.sites.regions_along import runs_wrapped
from amp_migrate.audit.sites.setups import Identity, SetUp
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.ways.chains import Chain, is_test
from amp_migrate.audit.ways.formulas import conjunction, example

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

NotSeen = tuple[Forward, tuple[Module, ast.Call]]  # a forward before, and its call after


def not_seen(both: Mixed, told: Callable[[Forward], bool]) -> Iterator[Doubt]:
    """Networks on ways that are not seen to start, or to come by the set-up: half under O1, where they came after it. One of
    each function counts, another network than the model if there is one, of which nothing else is said; and those of the programs
    that share their set-ups are told together. `told`: of which something else is said."""
    found: dict[tuple[SetUp, ...], list[NotSeen]] = {}
    functions: set[tuple[str, str]] = set()
    mentioned = _may_be_run(both)

    def add(forward: Forward, place: tuple[Module, ast.Call], starts: Iterable[Function | None]) -> None:
        if mentioned is not None and not any(f is None or mentioned.definition(f.qualname) for f in starts):
            return
        if float_method(both, forward):
            return
        functions.add(_around(place))
        found.setdefault(tuple(both.near_setups(forward.module)), []).append((forward, place))

    for forward, model in sorted(named(both), key=lambda n: last_name(n[0].model) in both.start):
        place = both.now(forward.module, forward.call)
        function = forward.module.function_around(forward.call)
        if place is None or function is None or told(forward) or _tries_its_own(function, model):
            continue
        if _around(place) in functions or not _may_patch(both, forward.module):
            continue  # said of this function, or no O1 near
        if both.after.regions.wrapped and any(
            both.after.wrapped(f) or both.after.may_be_wrapped(f)
            for f in both.after.forwards.of(place[0])
            if f.call is place[1]
        ):
            continue  # its forward takes its region along
        ways = [(w, both.chain_before(w)) for w in both.after.chains.to(*place) if not is_test(w.start.function)]
        if not ways or any(both.in_region(w) is not False or _within_wrapped(both, w) for w, _ in ways):
            continue
        if not any(_may_be_on(both, forward, w, old) for w, old in ways if was_float32(both.review, w) != DISABLED):
            continue  # a run that came by the set-up takes another branch, or its casts were off
        if all(w.open or (old is not None and not both.under_apex(old, model).sure) for w, old in ways):
            add(forward, place, [w.start.function for w, _ in ways])
    for forward, callers in own_runs(both):
        place = both.now(forward.module, forward.call)
        if place is None or told(forward) or _around(place) in functions or not _may_patch(both, forward.module):
            continue
        if both.itself(forward) and all(_is_called(both, w) for w in both.after.chains.to(*place)):
            continue  # of which it is compared how it ran
        if any(both.in_region(w) is not False for w in both.after.chains.to(*place)) or runs_wrapped(both, place):
            continue
        ways_there = [w for c in callers for w in both.before.chains.to(*c) if w.open and not is_test(w.start.function)]
        if ways_there:
            add(forward, place, [w.start.function for w in ways_there])
    yield from (_doubt(both, places) for places in found.values())


def _doubt(both: Mixed, places: list[NotSeen]) -> Doubt:
    """One doubt for all of them, which names the others."""

    def called(forward: Forward) -> str:
        return f"{forward.text} in {forward.module.name_around(forward.call) or 'this file'}"

    ordered = sorted(places, key=lambda p: (p[1][0].path, both.review.line(*p[1])))
    (forward, place), *others = ordered
    more = [f"{called(f)} ({p[0].path}:{both.review.line(*p)})" for f, p in others]
    also = (
        f"; so for {', '.join(more[:MOST])}{f' and {len(more) - MOST} more' if len(more) > MOST else ''}"
        if more
        else ""
    )
    message = (
        f"{called(forward)}: that this comes after amp.initialize is not seen; where it does, O1 ran it in half precision, and it "
        f"runs in float32 now, outside of any autocast region{also}"
    )
    told_by = ("AMP502",) if not others else ()
    return both.review.doubt(*place, "AMP531", "a call of the model", message, "look", told_by)


def _is_called(both: Mixed, chain: Chain) -> bool:
    """Whether a way is seen to come by a call of the method that it ends in."""
    return len(chain.steps) > 1 and both.after.chains.certain(chain)


def _may_patch(both: Mixed, module: Module) -> bool:
    """Whether O1 is set up in programs that a file is part of, and not only by scripts that do not load it."""
    chains = both.before.chains
    near = [s for s in both.near_setups(module) if s.usually_patches]
    ways = [way for s in near for way in chains.to(s.module, s.call)]
    return bool(near) and (not ways or any(w.open or chains.may_load(w.start, module) for w in ways))


def _around(place: tuple[Module, ast.Call]) -> tuple[str, str]:
    """The function, of whatever class, in which a call stands."""
    return place[0].path, place[0].name_around(place[1])


def _tries_its_own(function: Function, model: frozenset[Identity]) -> bool:
    """Whether a function that is given nothing makes the network that it runs: `def test(): net = Net(); print(net(x).shape)`
    below a network, which nothing in sight calls."""
    inside = set(syntax.walk(function.node))
    return not function.parameters and bool(model) and all(node in inside for node, *_ in model)


def _may_be_run(both: Mixed) -> Mentioned | None:
    """What a run may come to that sets Apex up; None where only the users of a library do, who may run anything."""
    ways = (way for s in both.removed for way in both.before.chains.to(s.module, s.call))
    if all(way.open or is_test(way.start.function) for way in ways):
        return None
    return in_runs_before(both)


def _may_be_on(both: Mixed, forward: Forward, chain: Chain, old: Chain | None) -> bool:
    """Whether some switch of Apex lets a run come this way, before and now."""
    given = [both.after.predicates.given(chain), *([both.before.predicates.given(old)] if old is not None else [])]
    return any(example(conjunction([*given, on])) is not None for on in both.on_near(forward.module))


def _within_wrapped(both: Mixed, chain: Chain) -> bool:
    """Whether a way starts with the `forward` of a network, which some other network runs, and such a one was wrapped."""
    start = chain.start.function
    if start is None or start.owner is None or start.name != "forward" or not both.review.after.is_network(start.owner):
        return False
    return any(attribute.attr == "forward" for _, attribute, _ in both.after.regions.wrapped)
