"""Code out of sight that is given an initialized model: what it runs was half under Apex, and may be float32 now; what runs in
a region may leave gradients there.

Not proved: what that code does. Libraries whose functions are known to run no model are not told of.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace

from amp_migrate.audit.checks.precision import deciding, way
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.kept import kept
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.prepared import Was
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.networks import is_given
from amp_migrate.audit.sites.runners import (
    IGNITE,
    KNOWN,
    MODELS,
    OF_TORCH,
    chosen,
    evaluates,
    handed_in,
    runs_beside,
    runs_it,
)
from amp_migrate.audit.sites.setups import identities
from amp_migrate.audit.sites.writers import gradients_off
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.ways.chains import Chain, Step
from amp_migrate.audit.ways.formulas import Formula, conjunction, example, matter, minimal, negation, spelled
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP531 and AMP232: see `precision.py`, `stepping.py`


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if both.removed:
        yield from _handed_out(both)
        if any("GradScaler" in m.words for m in review.after.modules.values()):
            yield from _handed_out_inside(both)


def _handed_out_inside(both: Mixed) -> Iterator[Doubt]:
    """Functions out of sight that are given an initialized model within a region: what they do with its gradients."""
    names = both.after.forwards.names.reached(both.start)
    for change in both.review.changes.values():
        module = change.after
        for call in module.calls():
            given = [
                v for v in syntax.given(call) if isinstance(v, (ast.Name, ast.Attribute)) and last_name(v) in names
            ]
            scope = module.scope_of(call)
            name = both.review.after.dotted(scope, call.func) if given else None
            if name is None or name.partition(".")[0] in KNOWN | sys.stdlib_module_names:
                continue  # which calls nothing here: `functools.partial(model, x)`
            if both.review.after.callees(module, call) or both.review.after.definitions(scope, call.func):
                continue
            region = both.after.regions.nearest(module, call)
            if region is None or region.off or not both.written(region):
                continue
            if gradients_off(both.review.after, module, call) or runs_it(name.rpartition(".")[2]):
                continue  # no backward runs there
            model = next((v for v in given if is_given(both, module, v)), None)
            if model is not None:
                message = (
                    f"{syntax.text(call.func)} is given {syntax.text(model)} in the autocast region and is out of sight: a backward "
                    "in it would run under autocast, and what gradients it leaves in the model the scaler's step divides by "
                    "the loss scale, where Apex did not. See what it does"
                )
                yield both.review.doubt(module, call, "AMP232", "optimizer.step", message, "look")


def _handed_out(both: Mixed) -> Iterator[Doubt]:
    """Functions out of sight that are given an initialized model: what they run was half under Apex."""
    names = both.before.forwards.names.reached(both.start)
    for module in both.near:
        for call in module.calls():
            by_name = [k.value for k in call.keywords if k.arg in MODELS]
            values = [*syntax.given(call)]
            of_torch = last_name(call.func) in OF_TORCH
            if not by_name and not of_torch and not any(last_name(v) in names for v in values):
                continue
            scope = module.scope_of(call)
            if module.unbound(call.func):
                continue  # a NameError, before and after
            name = both.review.before.dotted(scope, call.func)
            of_torch = of_torch and (name or "").startswith("torch.")
            by_name += call.args[1:2] if of_torch else []
            if name is None and both.review.before.starred_from_afar(scope, call.func):
                name = syntax.text(call.func)
            if name is not None and not of_torch:
                runs = evaluates(name.rpartition(".")[2]) or runs_beside(both, module, call)
                if name.partition(".")[0] in KNOWN or not runs:
                    continue
            if both.review.before.callees(module, call) or both.review.before.definitions(scope, call.func):
                continue
            if not any(isinstance(v, (ast.Name, ast.Attribute)) for v in values):
                continue
            inside = chosen(both, module, call) if name is None else []
            if name is None and not inside and not handed_in(both, module, call):
                continue
            mixed_here = any(s.usually_patches for s in both.near_setups(module))
            given = [
                v
                for v in values
                if isinstance(v, (ast.Name, ast.Attribute))
                and (
                    identities(both.review.values_before, scope, v) & both.initialized
                    or (mixed_here and v in by_name)
                    or _kept_out_of_sight(both, module, v, mixed_here)
                )
            ]
            place = both.now(module, call)
            if not given or place is None:
                continue
            told = False
            for chain in both.after.chains.to(*place):
                old = both.chain_before(chain)
                if old is None:
                    continue
                model = identities(both.review.values_before, scope, given[0])
                was = both.under_apex(old, model if model & both.initialized else model | both.initialized)
                ways = [one for f in inside if (one := _further(both, chain, f)) is not None] or [chain]
                if not told and was.half is not False and any(both.in_region(one) is False for one in ways):
                    told = True
                    where = "runs it" if inside else "is out of sight"
                    own = "; amp_mode='amp' gives it one" if name in IGNITE else ""
                    when = _where(both, chain, old, was.half, was.going) or ""
                    message = (
                        f"{syntax.text(call.func)} is given {syntax.text(given[0])} and {where}: "
                        f"a forward in it ran in half precision under Apex{when}, and runs in float32 now unless it has a "
                        f"region of its own{own}"
                    )
                    by = ("AMP502", "AMP518")
                    doubt = both.review.doubt(*place, "AMP531", "a call of the model", message, "review", by)
                    wanted = both.review.wish.eval != "fp32"
                    if wanted and name is not None and not own and _only_evaluates(module, call, name):
                        doubt = replace(doubt, lost=((call.lineno, call.col_offset),))
                    yield doubt
                elif not inside and (taken := _taken_in(both, chain, old, was)) is not None:
                    yield taken
                    break


def _taken_in(both: Mixed, chain: Chain, old: Chain, was: Was) -> Doubt | None:
    """What is said of a call in a region that the migration wrote, of a way to it that had no mixed precision."""
    now = both.in_region(chain)
    region = both.after.regions.nearest(chain.place.module, chain.place.node)
    if now is False or region is None or not both.written(region) or not was.sure:
        return None
    wrong = conjunction([now, negation(was.going)])
    where = _where(both, chain, old, wrong, wrong)
    if where is None or not both.after.chains.certain(chain) or chain.open:
        return None
    called = syntax.text(chain.place.node.func) if isinstance(chain.place.node, ast.Call) else "what is called"
    message = (
        f"{called} runs under autocast now{where}, where Apex had not been set up for it before ({way(both, chain)}): what it is "
        "given ran in float32. Switch the region off there (enabled=) to keep that"
    )
    doubt = both.review.doubt(chain.place.module, chain.place.node, "AMP531", "a call of the model", message, "review")
    return replace(doubt, remedy=(doubt.path, doubt.line))


def _where(both: Mixed, chain: Chain, old: Chain, holding: Formula, going: Formula) -> str | None:
    """The runs by a way in which something holds; None where there are none. `going`: the same of runs that nothing stops."""
    came = [both.before.predicates.given(old), both.after.predicates.given(chain)]
    given = conjunction([*came, both.levels_asked])
    told = conjunction([given, holding])
    if (found := example(told)) is None:
        return None
    when = deciding(both, chain, old, given, going, False)
    return spelled(when if when is not None else matter(minimal(told, found), holding, False))


def _only_evaluates(module: Module, call: ast.Call, name: str) -> bool:
    """Whether a statement is one call of a function that evaluates the model it is given, and trains none."""
    stmt = module.statement(call)
    alone = isinstance(stmt, (ast.Expr, ast.Assign, ast.Return)) and stmt.value is call
    return alone and runs_it(name.rpartition(".")[2])


def _kept_out_of_sight(both: Mixed, module: Module, value: ast.expr, patched: bool) -> bool:
    """Whether a value is what a base class out of sight keeps, by the name of a model that is initialized; its constructor
    was given that, or O1 runs any."""
    found = identities(both.review.values_before, module.scope_of(value), value)
    owners = [i[1] for i in found if i[0] == "field" and i[2] in both.start]
    if not owners or len(owners) < len(found):
        return False
    return patched or all(isinstance(o, Class) and given_to_base(both, o) for o in owners)


@kept
def given_to_base(both: Mixed, owner: Class) -> bool:
    """Whether the constructor of a class hands an initialized model on to that of its base."""
    for function in owner.methods.get("__init__", ()):
        for call in syntax.every(function.node, ast.Call):
            if last_name(call.func) == "__init__":
                given = (identities(both.review.values_before, function.scope, v) for v in syntax.given(call))
                if any(each & both.initialized for each in given):
                    return True
    return False


def _further(both: Mixed, chain: Chain, forward: Forward) -> Chain | None:
    """A way through the program after, on to a forward in what is called at its end."""
    place = both.now(forward.module, forward.call)
    if place is None:
        return None
    module, call = place
    return Chain((*chain.steps, Step(module, module.function_around(call), call)))
