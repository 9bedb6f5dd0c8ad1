"""A forward that ran in half under Apex runs under autocast now, and no other does.

For every call of a model and every way to it: the condition under which Apex had been set up before it came (O1 patches
the process, but for what TorchScript runs; O2 and O3 change the models they are given), against the switch of the autocast
region it stands in now. Two conditions are compared over all values of the flags in them. Not proved: models that only code
out of sight calls, and ways through objects whose class is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from amp_migrate.audit.checks.half_inputs import given_half
from amp_migrate.audit.doubts import Doubt, Verdict, with_lines, with_ways
from amp_migrate.audit.kept import kept
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.disabled import DISABLED, was_float32
from amp_migrate.audit.sites.float_methods import float_method, runs_products
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.handed_methods import runs_elsewhere
from amp_migrate.audit.sites.held_networks import handed_in
from amp_migrate.audit.sites.made_anew import Anew
from amp_migrate.audit.sites.made_anew import doubts as made_anew
from amp_migrate.audit.sites.networks import float_layer, others, part_of_given
from amp_migrate.audit.sites.off_without import off_without
from amp_migrate.audit.sites.regions_along import has_own_region, takes_region
from amp_migrate.audit.sites.setups import INITIALIZE, Identity
from amp_migrate.audit.sites.taken_in import taken_in
from amp_migrate.audit.sites.torchscript import WHY
from amp_migrate.audit.sites.unseen_ways import not_seen
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.ways.chains import Chain, as_written, is_test
from amp_migrate.audit.ways.formulas import (
    Formula,
    apart,
    atoms,
    comparable,
    conjunction,
    example,
    matter,
    minimal,
    negation,
    spelled,
)
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP531",
        title="a forward that ran in half precision runs in float32 now, or the other way round",
        construct="a call of the model",
        apex="Under O1 everything after `amp.initialize` in that process ran mixed; under O2 and O3 the models given to it.",
        native="Put the forward in the region where it ran mixed; make `enabled=` False in runs that never came by "
        "`initialize`. Or accept the other precision knowingly.",
        why="Evaluation in another precision gives other numbers, speed and memory than the published ones.",
    ),
)


Told = tuple[str, str, str, str]  # one doubt of a kind for all such calls in a function


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not both.removed:
        return
    told: dict[Told, list[Doubt]] = {}
    anew: list[Anew] = []
    for forward, model in both.forwards_before():
        if not model & both.initialized and not (both.patched and model & both.around):
            continue
        found = _compared(both, forward, model)
        for kind, doubt in found:
            if doubt is not None and not (float_layer(both, forward) or float_method(both, forward)):
                if isinstance(doubt, Anew):
                    anew.append(doubt)
                else:
                    more = (d for k, d in found if k == kind == "gained" and isinstance(d, Doubt))
                    told.setdefault(_told(kind, forward), []).append(with_ways(doubt, more))
            break
    yield from map(with_lines, told.values())
    yield from made_anew(both, anew)
    known = set(told)
    yield from _others(both, known)
    yield from _without_set_up(both, known)
    yield from not_seen(both, lambda f: _told("lost", f) in known)
    yield from _taken_in(both, set(told))
    yield from _apart(both, known)


def _told(kind: str, forward: Forward) -> Told:
    return kind, forward.module.path, forward.module.name_around(forward.call), forward.text


def _apart(both: Mixed, known: set[Told]) -> Iterator[Doubt]:
    """TorchScript in regions now, also as a part of other networks, and what those were handed, where it was float32."""
    compiled = ((forward, WHY) for forward in both.compiled.forwards())
    for forward, why in (*compiled, *((forward, "") for forward in handed_in(both))):
        if _told("gained", forward) in known:
            continue
        for kind, doubt in _compared(both, forward, both.before.forwards.identities(forward)):
            if kind == "gained" and isinstance(doubt, Doubt) and why in doubt.message:
                known.add(_told(kind, forward))
                yield doubt
                break


def _others(both: Mixed, told: set[Told]) -> Iterator[Doubt]:
    """Networks that no set-up was given, which O1 ran in mixed precision all the same, and O2 and O3 did not; those of
    functions handed on."""
    for forward, model in others(both):
        if both.now(forward.module, forward.call) is None:
            continue
        patching = [s for s in both.around_of(forward.module) if s.patches]
        weights_only = bool(patching) and all(s.usual in ("O2", "O3") for s in patching)
        if (
            not patching and not model and last_name(forward.model) in both.start
        ):  # called as the model is: see `_taken_in` for others
            weights_only = both.floats(forward.module)
        open_level = [s for s in patching if not s.levels and s.usual is None]  # only asked for at run time
        if not model and not weights_only and not all(s.usually_patches or s in open_level for s in patching):
            continue
        if weights_only:
            model = both.before.forwards.identities(forward)
            if not both.seen(model) or model & both.initialized or part_of_given(both, forward):
                continue
        sought = "gained" if weights_only else "lost"
        if _told(sought, forward) in told or (sought == "lost" and open_level and _opens_itself(both, forward)):
            continue
        made = both.before.forwards.identities(forward)  # a network that runs without a set-up make anew, in some run
        patched_later = bool(patching) and all(s.surely_patches for s in patching) and both.seen(made)
        for kind, doubt in _compared(both, forward, model):
            told_of = kind == sought or (kind == "gained" and patched_later and _told(kind, forward) not in told)
            if told_of and isinstance(doubt, Doubt) and not float_method(both, forward):
                told.add(_told(kind, forward))
                if open_level and not model and not weights_only:
                    message = f"where the opt level asked for is O1: {doubt.message}"
                    doubt = replace(doubt, message=message, verdict="look")
                yield doubt
                break


def _opens_itself(both: Mixed, forward: Forward) -> bool:
    """Whether a network opens a region in its own forward, as far as it is seen which one it is; else whether any does."""
    runs = both.before.forwards.runs(forward)
    if not runs:
        near = [m for m in both.before.modules if "autocast" in m.text]
        networks = [c for m in near for c in m.classes if both.review.before.is_network(c)]
        runs = [f for c in networks for f in c.methods.get("forward", ())]
    return any("autocast" in f.module.source(f.node) for f in runs)


def _without_set_up(both: Mixed, known: set[Told]) -> Iterator[Doubt]:
    """Models in regions that the migration wrote into files of which no program sets Apex up: a demo, a service."""
    for change in both.review.changes.values():
        module = change.after
        if both.near_setups(change.before):
            continue
        if "apex" in change.before.text or "scale_loss" in change.before.text:
            continue  # a part of a program that sets Apex up, by whatever way it comes to it
        told = set()
        for forward, region, function in both.in_written_regions(module):
            if function in told or last_name(forward.model) not in both.network_names | both.start:
                continue
            if off_without(both, region):
                continue
            told.add(function)
            if _told("gained", forward) in known:
                continue
            asked = syntax.text(region.enabled) if region.enabled is not None else ""
            where = f" where {asked}" if asked and asked != "True" else ""
            message = (
                f"{forward.text} runs under autocast now{where}; no amp.initialize is in sight of the programs that use this "
                "file: it ran in float32 there. Switch the region off (enabled=) to keep that"
            )
            yield both.review.doubt(module, forward.call, "AMP531", "a call of the model", message, "review")


def _taken_in(both: Mixed, known: set[Told]) -> Iterator[Doubt]:
    """Networks that no set-up was given, in regions now, where Apex left them in float32: under O2 and O3."""
    found: dict[tuple[Module, object, str], list[ast.Call]] = {}
    for module, call, network in taken_in(both):
        if ("gained", module.path, module.name_around(call), network) in known:
            continue
        if both.floats(module) or both.asks(module):
            found.setdefault((module, module.function_around(call), network), []).append(call)
    for (module, _, network), calls in found.items():
        lines = list(dict.fromkeys(both.review.line(module, call) for call in calls))
        others = f" (and in line{'s' * (len(lines) > 2)} {', '.join(map(str, lines[1:]))})" if len(lines) > 1 else ""
        given = any(s.name == INITIALIZE for s in both.around_of(module) if s.models)
        why = (
            "was not given to amp.initialize: O2 and O3 left it in float32"
            if given
            else "is not what was made half for Apex's optimizer: it ran in float32"
        )
        asked = not both.floats(module)
        message = (
            f"{network} {why}{', where they are asked for' * asked}, and it runs under autocast here{others}; leave it outside "
            "of the region, or open one with enabled=False for it, to keep that"
        )
        verdict: Verdict = "look" if asked else "review"
        yield both.review.doubt(module, calls[0], "AMP531", "a call of the model", message, verdict, ("AMP507",))


def _compared(both: Mixed, forward: Forward, model: frozenset[Identity]) -> Iterator[tuple[str, Doubt | Anew | None]]:
    """What is to be said of a forward, the ways that are sure first; nothing where a forward that runs it says the same."""
    alone = both.before.own_calls.uncalled
    ways = [w for w in both.ways(forward) if not (alone(forward, w[1]) or both.of_another(forward, w[1]))]
    certain = {chain for chain, _ in ways if both.after.chains.certain(chain)}
    wrapped: bool | None = None
    anew = Anew(forward)
    for chain, old in sorted(ways, key=lambda w: (w[0] not in certain, is_test(w[0].start.function))):
        sure = chain in certain
        compiled = both.compiled.runs(forward, old)
        was = both.under_apex(old, model, compiled)
        elsewhere = runs_elsewhere(forward.module, forward.call)
        now = both.in_region(chain) if not elsewhere else False
        if sure and now is not False and both.own_region(old) is False:
            if was.anew:
                anew.runs = was.anew
                anew.ways.append(chain)
            elif was.half is not False and model & both.initialized:
                anew.given.append(chain)
        came = [both.before.predicates.given(old), both.after.predicates.given(chain)]
        compared = atoms(conjunction([*came, was.reached, was.half, now]))
        told = (*both.before.predicates.made(old), _there(both, old))
        came += [formula for formula in told if atoms(formula) <= compared]
        given = conjunction([*came, both.levels_asked])
        lost = conjunction([given, was.reached, negation(now)])
        gained = conjunction([given, now, negation(was.going)])
        if (found := example(lost)) is not None and comparable(now, was.reached):
            if both.review.wish.eval == "fp32" and "backward" not in syntax.text(forward.module.around(forward.call)):
                continue
            if not sure and now is not False:
                continue
            running = (both.running[step.node] for step in chain.steps[:-1] if step.node in both.running)
            if not all(has_own_region(both, ran) for ran in running):
                continue  # what runs it is told of
            if wrapped is None:
                wrapped = takes_region(both, chain.place.module, chain.place.node)
            if not wrapped:
                when = deciding(both, chain, old, given, was.going_reached, now)
                when = matter(minimal(lost, found), was.reached, now) if when is None else when
                apex = example(conjunction([lost, negation(both.own_region(old))])) is not None
                ran = "under Apex" if apex else "in the program's own region"
                doubt = _doubt(both, forward, chain, "lost", when, ran)
                known = sure and not elsewhere and as_written(chain) and _set_up_plainly(both)
                doubt = doubt if known else replace(doubt, lost=())
                yield "lost", replace(doubt, verdict="look") if certain and not sure else doubt
        elif was.sure and sure and (compiled or _begun_in_sight(both, old)) and (found := example(gained)) is not None:
            if not compiled and any(step.node in both.running for step in chain.steps[:-1]):
                yield "gained", None
            elif comparable(was.going, now):
                when = deciding(both, chain, old, given, now, was.going)
                when = matter(minimal(gained, found), was.going, now) if when is None else when
                doubt = _doubt(
                    both, forward, chain, "gained", when, why=WHY if compiled and both.patches(forward.module) else ""
                )
                if any(both.under_apex(o, model).anew for c, o in ways if c in certain):
                    also = f"; what is made anew {both.since(chain.place.module)} was float32 under O2 and O3, too"
                    doubt = replace(doubt, message=doubt.message + also)
                if was.usual is not None and example(conjunction([given, now, negation(was.usual)])) is None:
                    doubt = replace(doubt, verdict="look")
                yield "gained", doubt
    if anew.ways:
        yield "anew", anew


def _there(both: Mixed, chain: Chain) -> Formula:
    """That what a way calls at its end is not None."""
    predicates, called = both.before.predicates, chain.place.node
    if not isinstance(called, ast.Call):
        return True
    asked = ast.Compare(called.func, [ast.Is()], [ast.Constant(None)])
    return negation(predicates.of(ast.copy_location(asked, called), predicates.places(chain)[-1]))


def _begun_in_sight(both: Mixed, chain: Chain) -> bool:
    """Whether no set-up comes before the function that a way begins with: its own lines, or one that nothing in sight calls and
    that all ways to set-ups begin with, too."""
    if not chain.open:
        return True
    ways = [way for s in both.removed for way in both.before.chains.to(s.module, s.call)]
    start = chain.start.function
    return start is not None and start.owner is None and all(way.start.function is start for way in ways)


@kept
def _set_up_plainly(both: Mixed) -> bool:
    """Whether a set-up is come by in a way that is as it is written."""
    return any(as_written(way) for s in both.removed for way in both.before.chains.to(s.module, s.call))


def deciding(
    both: Mixed, chain: Chain, old: Chain, given: Formula, holding: Formula, failing: Formula
) -> Mapping[str, bool] | None:
    """The flags that decide that one condition holds and another does not, of which neither names what only lets a run go on;
    None where it takes that, too."""
    if (alone := apart(given, holding, failing)) is not None:
        return alone
    came = [both.before.predicates.given(old, stops=False), both.after.predicates.given(chain, stops=False)]
    told = conjunction([*came, both.levels_asked, holding, negation(failing)])
    found = example(told)
    return matter(minimal(told, found), holding, failing) if found is not None else None


def _doubt(
    both: Mixed,
    forward: Forward,
    chain: Chain,
    kind: str,
    when: Mapping[str, bool],
    ran: str = "under Apex",
    why: str = "",
) -> Doubt:
    came = way(both, chain)
    where = spelled(when)
    around = both.after.region_around(chain) if kind == "lost" else None
    raises = _raises(both, chain) if kind == "lost" else ""
    if kind != "lost":
        why = why or was_float32(both.review, chain, both.patches(forward.module))
    if around is not None and around.enabled is not None:
        message = (
            f"{forward.text} ran in half precision {ran}{where}; {came}, the autocast region around it is off there now "
            f"({syntax.text(around.enabled)}): {raises or 'it runs in float32'}. Have that on there to keep its precision, "
            "speed and memory"
        )
    elif kind == "lost" and runs_elsewhere(forward.module, forward.call):
        message = (
            f"{forward.text} ran in half precision {ran}{where}; {came}, it runs later, or in another thread, where no autocast "
            "region around this call reaches it: it runs in float32. Open one in what runs there to keep its precision"
        )
    elif kind == "lost":
        message = (
            f"{forward.text} ran in half precision {ran}{where}; {came}, no autocast region is around it now: "
            f"{raises or 'it runs in float32'}. Put it in a region to keep its precision, speed and memory"
        )
        node = chain.place.node
        now = both.after.forwards.at(chain.place.module, node) if isinstance(node, ast.Call) else None
        if now is not None and (half := given_half(both, now)):
            message += f"; without one {half}, which is made half here, meets float32 weights, and a layer raises"
    else:
        message = (
            f"{forward.text} runs under autocast now{where}, where {why} ({came}): it ran in float32. Switch the region off there "
            "(enabled=) to keep that"
        )
    place = chain.place
    told = ("AMP502",) if kind == "lost" and not raises else ()
    if kind != "lost" and any(flag.endswith(" == 'O1'") and not on for flag, on in when.items()):
        told = ("AMP507",)  # at another level it was float32
    doubt = both.review.doubt(place.module, place.node, "AMP531", "a call of the model", message, "review", told)
    doubt = replace(doubt, alike=message.replace(came, "", 1))
    if kind == "gained" and why == DISABLED:
        return replace(doubt, verdict="refuse")
    if kind == "gained":
        return replace(doubt, remedy=(doubt.path, doubt.line))
    bare = around is None and forward.module.path == doubt.path and runs_products(both, forward)
    return replace(doubt, lost=((forward.call.lineno, forward.call.col_offset),)) if bare else doubt


def _raises(both: Mixed, chain: Chain) -> str:
    """What is said of a forward that does not run in float32: something is made half by hand in it, and meets float32."""
    call = chain.place.node
    forward = both.after.forwards.at(chain.place.module, call) if isinstance(call, ast.Call) else None
    found = both.by_hand.raises(forward) if forward is not None else None
    if found is None:
        return ""
    made, taken = (f"{m.path}:{both.review.line(m, node)}" for m, node in found)
    return f"it raises, as {made} makes half by hand what {taken} takes beside float32"


def way(both: Mixed, chain: Chain) -> str:
    """`called from main.py:7`."""
    if len(chain.steps) == 1:
        return "here"
    caller, started = chain.steps[-2], chain.start.module
    came = f"called from {caller.module.path}:{both.review.line(caller.module, caller.node)}"
    return came if started is caller.module else f"{came} in a run of {started.path}"
