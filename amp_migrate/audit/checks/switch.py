"""What switches autocast and the scaler is still written somewhere, a scaler that scales has a region beside it, no new
region switches off one that the program had around it, and no constructor puts a disabled scaler in place of one that a method
of the object, which it has run, may have made.

Whether the switch is on in the same runs as Apex was is compared forward by forward: see `precision.py`, and of the scaler at
O0 `scaled_at_o0.py`; that it is a bool is a matter of `calls.py`, that it asks for Apex one of `without_apex.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.near import near_in
from amp_migrate.audit.review import Review, calls_in
from amp_migrate.audit.sites.regions import AUTOCAST, Region
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.ways.off_instead import GRAD_SCALER
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP532",
        title="the switch of mixed precision changed its meaning",
        construct="enabled=",
        apex="Apex was on where `amp.initialize` was reached, whatever the flag around it held.",
        native="A switch that asks for what is still there; with a scaler that scales, a forward in a region.",
        why="A key that nothing writes is always absent: mixed precision is off from then on, without a word.",
    ),
)


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    for path, change in review.changes.items():
        module = change.after
        positions = {**AUTOCAST, **GRAD_SCALER}
        for call, name in calls_in(review.after, module, positions):
            if change.changed(call):
                enabled = argument(call, "enabled", positions[name])
                if enabled is not None:
                    yield from _unwritten(both, path, module, call, enabled)
                if enabled is not None and name in AUTOCAST:
                    yield from _inside(both, module, call, enabled)
        yield from _replaced(review, change)
    yield from _alone(both)


def _replaced(review: Review, change: Change) -> Iterator[Doubt]:
    """A disabled scaler for an object to begin with, below a call in its constructor that makes the real one."""
    module = change.after
    for function in module.functions:
        if "GradScaler" not in module.words or getattr(function.node, "name", "") != "__init__":
            continue
        body, own = getattr(function.node, "body", []), next((p.arg for p in function.parameters), "")
        for at, stmt in enumerate(body):
            target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
            if not isinstance(target, ast.Attribute) or syntax.text(target.value) != own or not change.changed(stmt):
                continue
            if _made_enabled(review, module, stmt) is not False:
                continue
            for call in (n for s in body[:at] for n in syntax.every(s, ast.Call)):
                if syntax.text(call.func).startswith(f"{own}.") and _makes(review, module, call, target.attr, 0):
                    message = (
                        f"{syntax.text(call.func)}(...), which has run above, may have made {syntax.text(target)}: a disabled one "
                        "takes its place, and whoever was handed the first keeps that"
                    )
                    yield review.doubt(module, stmt, "AMP532", "GradScaler", message, "refuse")
                    break


def _makes(review: Review, module: Module, call: ast.Call, name: str, depth: int) -> bool:
    """Whether a method of an object, or one that it calls there, keeps a scaler that may be enabled under a name."""
    for method in review.after.callees(module, call):
        own = next((p.arg for p in method.parameters), "")
        for node in syntax.walk(method.node):
            if isinstance(node, ast.Assign) and any(syntax.text(t) == f"{own}.{name}" for t in node.targets):
                if _made_enabled(review, method.module, node):
                    return True
            if depth < 4 and isinstance(node, ast.Call) and syntax.text(node.func).startswith(f"{own}."):
                if _makes(review, method.module, node, name, depth + 1):
                    return True
    return False


def _made_enabled(review: Review, module: Module, stmt: ast.stmt) -> bool | None:
    """Whether an assignment makes a scaler that may be enabled; None where it makes none."""
    value = stmt.value if isinstance(stmt, ast.Assign) else None
    if not isinstance(value, ast.Call) or "GradScaler" not in syntax.text(value.func):
        return None
    name = review.after.dotted(module.scope_of(value), value.func)
    if name not in GRAD_SCALER:
        return None
    return not syntax.is_false(argument(value, "enabled", GRAD_SCALER[name]))


def _inside(both: Mixed, module: Module, call: ast.Call, enabled: ast.expr) -> Iterator[Doubt]:
    """A region inside one that the program had: where its switch is off, it switches that one off."""
    side, asked = both.after, syntax.text(enabled)
    own = side.regions.opened(module, call)
    if own is None or isinstance(enabled, ast.Constant) or own.switch[1]:
        return
    for chain in side.chains.to(module, call):
        below: set[str] = set()  # what is asked between an outer region and this one
        for step in reversed(chain.steps):
            tests = side.chains.tests(step.module, step.node)
            for outer in side.regions.around(step.module, step.node):
                if outer.call is call or outer.off or outer.unseen or not _there_before(both.review, outer):
                    continue
                before = side.chains.tests(outer.module, outer.call)
                within = {n for test in tests if test not in before for n in _names(test[0])}
                switches = [outer.enabled, outer.choice[0] if outer.choice is not None else None]
                deciding = {n for s in switches if s is not None for n in _names(s)}
                if deciding & (below | within | _names(enabled)):
                    continue
                device = syntax.text(call.args[0]) if call.args else "'cuda'"
                at = f"{outer.module.path}:{both.review.line(outer.module, outer.call)}"
                opened = module.statement(call)
                alike = isinstance(opened, (ast.With, ast.AsyncWith)) and _dtype(outer) == _dtype(own)
                remedy = (
                    f"Write {asked} or torch.is_autocast_enabled({device})"
                    if alike
                    else "Enter none where that one is on"
                )
                message = (
                    f"this region is run inside the program's own ({at}): where {asked} is off it switches that one off, "
                    f"and what ran in it runs in float32. {remedy}"
                )
                doubt = both.review.doubt(module, call, "AMP532", "enabled=", message, "review")
                if alike and isinstance(opened, (ast.With, ast.AsyncWith)):
                    doubt = replace(doubt, remedy=(doubt.path, both.review.line(module, opened.body[0])))
                yield doubt
                return
            below |= {n for test, _ in tests for n in _names(test)}


def _dtype(region: Region) -> str:
    """The type that a region casts to, where it says so; else CUDA's."""
    given = argument(region.call, "dtype", 1)
    return "float16" if given is None else syntax.text(given).rpartition(".")[2]


def _there_before(review: Review, region: Region) -> bool:
    opening = region.module.statement(region.call)
    if not isinstance(opening, (ast.With, ast.AsyncWith)):  # a variable opens it: when it holds a region is not seen
        return False
    place = review.statement_before(region.module, opening)
    unchanged = place is not None and place[0] is region.module
    return unchanged or (place is not None and any("autocast" in syntax.text(n) for n in syntax.own_line(place[1])))


def _names(expr: ast.expr) -> set[str]:
    """The names and attributes that an expression reads."""
    found = {syntax.text(n) for n in syntax.walk(expr) if isinstance(n, (ast.Name, ast.Attribute))}
    return {name for name in found if not any(other.startswith(f"{name}.") for other in found)}


def _unwritten(both: Mixed, path: str, module: Module, call: ast.Call, enabled: ast.expr) -> Iterator[Doubt]:
    """`enabled="amp" in checkpoint` where what is saved has another key now."""
    for node in syntax.walk(enabled):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.In):
            continue
        key = node.left.value if isinstance(node.left, ast.Constant) else None
        holder = node.comparators[0]
        if isinstance(holder, ast.Call) and syntax.text(holder).endswith(".keys()"):
            holder = holder.func
        around = module.parents.get(node)
        if not isinstance(key, str) or not isinstance(holder, (ast.Name, ast.Attribute)):
            continue
        if isinstance(around, ast.BoolOp) and isinstance(around.op, ast.Or):
            continue  # or for the new one
        written = _written(both.review.after.modules.values(), key)
        if not written and _written(both.review.before.modules.values(), key):
            message = f"nothing writes the key {key!r} any more: {syntax.text(node)} is False for every file saved from now on"
            yield both.review.doubt(module, call, "AMP532", "enabled=", message, "refuse")


def _written(modules: Iterable[Module], key: str) -> bool:
    for module in modules:
        if repr(key)[1:-1] not in module.text:
            continue
        for node in syntax.walk(module.tree):
            if isinstance(node, ast.Dict) and any(isinstance(k, ast.Constant) and k.value == key for k in node.keys):
                return True
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                if isinstance(node.slice, ast.Constant) and node.slice.value == key:
                    return True
            if isinstance(node, ast.keyword) and node.arg == key:
                return True
    return False


def _alone(both: Mixed) -> Iterator[Doubt]:
    """A scaler that scales while no forward of the program is in any region."""
    review = both.review
    if review.wish.dtype != "float16":
        return
    modules = review.after.modules.values()
    with_region = {m for m in modules if "autocast" in m.text}
    for change in review.changes.values():
        module = change.after
        if "GradScaler" not in module.words or module in with_region:
            continue
        if not with_region.isdisjoint(near_in(review.after).files([module])):
            continue
        program = near_in(review.before).files([change.before])
        setups = [s for s in both.all_setups if s.module in program]
        if setups and all(s.off for s in setups):
            continue  # O0, at which all ran in float32
        for call, name in calls_in(review.after, module, GRAD_SCALER):
            if not change.changed(call) or syntax.is_false(argument(call, "enabled", GRAD_SCALER[name])):
                continue
            if not any(m.method_calls("scale") for m in modules):
                continue
            message = (
                "the loss is scaled, but no forward in sight runs under autocast: the program trains in float32 with a "
                "GradScaler; put the forward and the loss, wherever they are, in a region"
            )
            yield review.doubt(module, call, "AMP532", "GradScaler", message, "review")
            break
