"""A network that the program made half and pickles whole is float32 in the file now, and old files still hold it half.

Said of programs that made it half themselves, `model.half()` or `network_to_half`: what `amp.initialize` prepares cannot be
pickled. Told: a script that loads such a file, known by its name, and runs the network outside of any region; and a
load whose network the loss scaler trains, where nothing makes float32 what an old file gives.

Not proved: which files there are; what is loaded under a name that is put together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from amp_migrate.audit.checks.half_inputs import given_half
from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import conditions
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review, calls_of
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.made_half import last_cast, made_half
from amp_migrate.audit.sites.setups import FP16_OPTIMIZER, INITIALIZE, SetUp, argument, identities
from amp_migrate.audit.values.values import Values
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP531: see `precision.py`; as AMP534: see `half_weights.py`
SAVES = ("torch.save", "pickle.dump", "dill.dump")
LOADS = ("torch.load", "pickle.load", "dill.load")


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    halved = [s for s in both.removed if s.name != INITIALIZE and s.models]
    if not halved or review.wish.dtype != "float16":
        return
    yield from _run(both, halved)
    yield from _trained(both, halved)


def _run(both: Mixed, halved: list[SetUp]) -> Iterator[Doubt]:
    saved = list(_saved(both, halved))
    for module, load, _ in calls_of(both.review.after, *LOADS) if saved else ():
        names = set(_names(both.review.values_after, module, load, 0))
        wanted = {(load, path, module): (where, call) for name, path, where, call in saved if name in names}
        for forward in both.after.forwards.of(module) if wanted else ():
            places = [
                wanted[i] for i in identities(both.review.values_after, forward.scope, forward.model) if i in wanted
            ]
            if places and not _half_again(forward) and _outside(both, forward):
                yield _told(both, forward, *places[0])
                break


def _told(both: Mixed, forward: Forward, where: Module, call: ast.Call) -> Doubt:
    half = given_half(both, forward)
    runs = f"it is given {half}, which is made half here, and raises" if half else "this runs in float32"
    message = (
        f"{forward.text} runs what {where.path}:{call.lineno} saves whole: its weights were float16 in that file and are float32 "
        f"now, so that {runs}, outside of any autocast region; of an old file it is half as before"
    )
    verdict: Verdict = "review" if half else "look"
    return both.review.doubt(forward.module, forward.call, "AMP531", "a call of the model", message, verdict)


def _saved(both: Mixed, halved: list[SetUp]) -> Iterator[tuple[str, tuple[object, ...], Module, ast.Call]]:
    """The names of files that hold a whole network which was half, where in them, and what writes them."""
    models = frozenset(i for s in halved for i in both.models[s])
    for module, call, _ in both.review.calls_before(*SAVES):
        given = call.args[0] if call.args else None
        entries: list[tuple[tuple[object, ...], ast.expr]] = [((), given)] if given is not None else []
        if isinstance(given, ast.Dict):
            named = zip(given.keys, given.values, strict=True)
            entries = [((k.value,), v) for k, v in named if isinstance(k, ast.Constant)]
        for path, value in entries:
            if models & identities(both.review.values_before, module.scope_of(call), value):
                for name in _names(both.review.values_before, module, call, 1):
                    yield name, path, module, call


def _names(values: Values, module: Module, call: ast.Call, at: int) -> Iterator[str]:
    """How a file is called that a call reads or writes: the last text of its path, or of the `open` that it is given."""
    given: list[ast.AST | None] = [argument(call, "f", at)]
    for around in module.ancestors(call):
        for item in around.items if isinstance(around, (ast.With, ast.AsyncWith)) else ():
            if item.optional_vars is not None and syntax.text(item.optional_vars) == syntax.text(given[0] or call):
                given = [item.context_expr]
    if isinstance(given[0], ast.Call) and syntax.last(given[0].func) == "open":
        given = [*given[0].args[:1]]
    if given and isinstance(given[0], (ast.Name, ast.Attribute)):
        given = [o.node for o in values.of(module, given[0])]
    for node in given:
        texts = [t.value for t in syntax.every(node, ast.Constant) if isinstance(t.value, str)] if node else []
        name = texts[-1].rpartition("/")[2] if texts else ""
        if name and not name.startswith("."):  # an ending alone
            yield name


def _half_again(forward: Forward) -> bool:
    """Whether the function makes the network half itself."""
    model, function = syntax.text(forward.model), forward.module.function_around(forward.call)
    halved = ((call, holder) for call, holder in made_half(forward.module) if syntax.text(holder) == model)
    return any(forward.module.function_around(call) in (function, None) for call, _ in halved)


def _outside(both: Mixed, forward: Forward) -> bool:
    """Whether a forward is in no region: a file that no changed one runs with has none but its own."""
    if forward.module in both.after.modules:
        return all(both.in_region(way) is False for way in both.after.chains.to(forward.module, forward.call))
    return "autocast" not in forward.module.words


def _trained(both: Mixed, halved: list[SetUp]) -> Iterator[Doubt]:
    """Networks out of a file that a loss scaler trains, where a file that was written before gives them half weights."""
    review = both.review
    for setup in halved:
        near = both.nearness.files([setup.module])
        if not any(module in near for module, _, _ in review.calls_before(*FP16_OPTIMIZER)):
            continue
        for load, path, module in sorted(both.models[setup], key=lambda i: getattr(i[0], "lineno", 0)):
            if path or not isinstance(load, ast.Call) or not isinstance(module, Module):
                continue
            place = both.now(module, load)
            if place is None or review.before.dotted(module.scope_of(load), load.func) not in LOADS:
                continue
            if _made_float(both, setup, *place):
                continue
            message = (
                f"{syntax.text(load)} gives a whole network, and {syntax.text(setup.call)} trained it in half: a file that was "
                'written before holds float16 weights, which GradScaler refuses ("Attempting to unscale FP16 gradients."). Write '
                ".float() on it; those that are written from now on hold float32"
            )
            doubt = review.doubt(*place, "AMP534", "model.half()", message, "review")
            yield replace(doubt, remedy=(setup.module.path, setup.call.lineno))


def _made_float(both: Mixed, setup: SetUp, module: Module, load: ast.Call) -> bool:
    """Whether what is loaded is made float32, at least where it was made half."""
    if last_cast(module, load) == "float":
        return True
    asked = {*conditions(module, module.statement(load)), *conditions(setup.module, setup.module.statement(setup.call))}
    return any(
        asked.issuperset(conditions(where, where.statement(call)))
        and (load, (), module) in identities(both.review.values_after, where.scope_of(call), holder)
        for where in both.after.modules
        for call, holder in where.method_calls("float")
        if not call.args
    )
