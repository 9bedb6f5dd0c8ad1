"""Units of which nothing would run under autocast: why that is, and whether they are refused."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence

from amp_migrate.reading.program.definitions import Function, dotted
from amp_migrate.reading.program.module import LOOP_NODES, Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.program.unseen import evaluates_unseen
from amp_migrate.reading.units.legacy import is_legacy
from amp_migrate.reading.units.telling_names import MODEL_NAMES
from amp_migrate.reading.units.unit import Blocked, Init, Loss
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions import forward, shared_regions

# What is given a model to look at, and does not run it: `wandb.watch(model)`.
LOOKS = frozenset(("watch", "unwatch"))
UNUSED = "nothing reads what it prepares: no region is needed; O1 cast what else the process computed with torch, too"


def none_in_sight(m: Migration, written: bool) -> None:
    """Refuse a unit of which nothing would run under autocast: a loss scaler would be all that is left of it."""
    scopes = [*m.regions.scopes(), *shared_regions.scopes(m)]
    _tell_unseen(m)
    if (
        not m.unit.inits
        or written
        or m.computed_apart
        or shared_regions.scopes(m)
        or any(m.regions.read(s).native for s in scopes)
    ):
        return
    if any(m.regions.read(scope).found for scope in scopes):  # --eval fp32 asked for none
        m.casts = False
        return
    if is_legacy(m.unit):
        return  # refused by its own rules
    if m.unit.only_inference and all(_unused(init) for init in m.unit.inits):
        m.casts = False
        for init in m.unit.inits:
            m.output.note(init.module, init.call, "AMP502", "torch.autocast", UNUSED, "look")
        return
    if _framework_computes(m.unit.losses) and forward.possible(m):
        forward.wrap(m, [], [])
        return
    init = m.unit.inits[0]
    raise Blocked.at(init.site, "AMP502", _nothing_cast(m))


def _tell_unseen(m: Migration) -> None:
    """Say of functions that only their names tell of that a region stands around them, or that they run in float32 now where
    what is set up is out of sight: else the audit knows."""
    forwards = m.regions.forwards
    for module in m.unit.modules if m.casts else ():
        for call, scope in module.calls:
            if not evaluates_unseen(m.project, module, call):
                continue
            given = [*call.args, *(k.value for k in call.keywords)]
            named = not m.unit.inits and any((dotted(v) or "").rpartition(".")[2] in MODEL_NAMES for v in given)
            if not named and not forwards.takes_model(module, call):
                continue
            name, read = ast.unparse(call.func), m.regions.read(scope)
            within = any(n is call for r in read.found for s in m.regions.held(scope, r) for n in walk(s))
            if within and m.unit.only_inference:
                message = (
                    f"{name} is out of sight, and taken to run the model, by its name: all of it runs under autocast, as it ran "
                    "under Apex; where it trains too, its backward belongs outside"
                )
            elif not within and not m.unit.inits and m.unit.losses:
                message = (
                    f"{name} is out of sight, and given the model: what it computes ran in mixed precision under Apex, and runs in "
                    "float32 now, unless it has a region of its own; put this call under torch.autocast to keep that"
                )
            else:
                continue
            m.output.note(module, call, "AMP502", "torch.autocast", message, "look")


def _unused(init: Init) -> bool:
    """Whether a function reads nothing of what it prepares once it is prepared, and nothing else can: it asks it for its
    attributes alone before."""
    module, scope = init.module, init.site.scope
    given = [*init.models, *init.model_targets, *init.optimizers, *init.optimizer_targets]
    names = {n.id for n in given if isinstance(n, ast.Name)}
    if (
        not scope.is_function
        or not isinstance(init.stmt, ast.Assign)
        or any(not isinstance(n, ast.Name) for n in given)
    ):
        return False
    if any(scope.lookup(name) is not scope or name in scope.params for name in names):
        return False
    if any(isinstance(a, LOOP_NODES) for a in module.ancestors(init.call)):
        return False
    reads = [n for name in names for n in module.loads.get(name, ()) if scope in module.scope_of(n).chain()]
    inside = set(walk(init.call))
    before = (
        isinstance(module.parents[n], ast.Attribute) and n.lineno < init.stmt.lineno for n in reads if n not in inside
    )
    return bool(names) and all(before) and all(module.scope_of(n) is scope for n in reads)


def _nothing_cast(m: Migration) -> str:
    """Why nothing of a unit would run under autocast, as far as it can be told."""
    told = "so nothing would run under autocast"
    for scope in m.regions.scopes():
        module = scope.module
        for call, where in module.calls:
            if where is scope and m.live(module, call) and m.regions.is_forward(module, call):
                place = f"{module.display}:{call.lineno}"
                return f"no loss is scaled where the model runs ({place}), {told}: put that in a region by hand"
    handed = sorted(_handed(m))
    if handed:
        places = ", ".join(f"{path}:{line} ({name})" for path, line, name in handed[:3])
        return (
            f"no call is recognised as the model's forward, {told}: what is given the model may run it, see {places}; put "
            "the forward and the loss in a region by hand"
        )
    uncalled = _uncalled(m)
    if uncalled:
        return (
            f"no forward of the model is in sight, {told}, and nothing in sight calls {uncalled}: delete it if nothing does, "
            "else rewrite this file together with the one that does"
        )
    own = {i.site.scope for i in m.unit.inits}
    idle = sorted(
        {
            f"{function.name} at {module.display}:{call.lineno}"
            for module, call, functions in _given(m)
            for function in functions
            if function.scope not in own
        }
    )
    if idle:
        return (
            f"no forward of the model is in sight, {told}: what is given it does not call it ({', '.join(idle[:3])}); delete what "
            "is set up for nothing, or put the forward and the loss in a region by hand"
        )
    return (
        f"no forward of the model is in sight, {told}: rewrite this file together with the one that runs the model, or put "
        "the forward and the loss in a region by hand"
    )


def _uncalled(m: Migration) -> str:
    """The function around the only `initialize`, where no file of the project names it: not even to hand it on."""
    function = m.project.functions.get(m.unit.inits[0].site.scope.node) if len(m.unit.inits) == 1 else None
    if function is None or function.node.decorator_list or function.name.startswith("__"):
        return ""
    word = re.compile(rf"\b{function.name}\b")
    named = sum(len(word.findall(module.text)) for module in m.project.modules)
    return function.name if named == 1 else ""


def _handed(m: Migration) -> Iterator[tuple[str, int, str]]:
    """Calls of what is out of sight that are given one of the unit's models once it is initialized."""
    for module, call, _ in _given(m):
        if _runs_unseen(m, call):
            yield module.display, call.lineno, ast.unparse(call.func)


def _given(m: Migration) -> Iterator[tuple[Module, ast.Call, Sequence[Function]]]:
    """Calls of the program that are given one of the unit's models once it is initialized, and the functions they run."""
    names = {slot.name for slot in m.unit.model_slots}
    inits = {init.call for init in m.unit.inits}
    for module in m.unit.reach:
        for call, scope in module.calls_naming(names):
            name = m.project.qualify(module, call.func) or ""
            if call in inits or name.startswith(("torch.", "apex.")) or not m.live(module, call):
                continue
            if any(i.site.scope is scope and call.lineno < i.call.lineno for i in m.unit.inits):
                continue
            values = [*call.args, *(k.value for k in call.keywords)]
            if any(m.regions.forwards.is_model(module, v) for v in values):
                yield module, call, m.project.resolved.get(call, ())


def _runs_unseen(m: Migration, call: ast.Call) -> bool:
    """Whether what a call runs is out of sight, and no function of Python's own."""
    if m.project.resolved.get(call) or (isinstance(call.func, ast.Attribute) and call.func.attr in LOOKS):
        return False
    return not (isinstance(call.func, ast.Name) and hasattr(builtins, call.func.id))


def _framework_computes(losses: Sequence[Loss]) -> bool:
    """Whether a framework runs the forward and gives the losses to hooks: `runner.outputs["loss"]`. It computes them
    inside the model's forward, or else in a place that nothing here can reach."""
    return bool(losses) and all(isinstance(loss.loss, (ast.Attribute, ast.Subscript)) for loss in losses)


def needs_region(m: Migration) -> None:
    """Raise Blocked where nothing of a unit of the older APIs, which do not name the models, would run under autocast: the migrated
    program would compute in float32."""
    if any(m.regions.read(scope).found for scope in (*m.regions.scopes(), *shared_regions.scopes(m))):
        return
    init = m.unit.inits[0]
    raise Blocked.at(
        init.site,
        "AMP502",
        "no forward of a model is in sight, so nothing would run under autocast; rewrite this file together with the "
        "one that runs the model",
    )
