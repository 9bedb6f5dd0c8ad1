"""What switches autocast and the scaler is a bool, is written somewhere, and does not ask whether Apex is loaded.

Whether the switch is on in the same runs as Apex was is compared forward by forward: see `precision.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.predicates import GRAD_SCALER
from amp_migrate.audit.program import Module, Scope
from amp_migrate.audit.regions import AUTOCAST
from amp_migrate.audit.review import Review
from amp_migrate.audit.setups import argument
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP532",
        title="the switch of mixed precision changed its meaning",
        construct="enabled=",
        apex="Apex was on where `amp.initialize` was reached, whatever the flag around it held.",
        native="`enabled=` of autocast takes a bool and nothing else; of a scaler that is scaled, some forward must run in "
        "a region.",
        why="A flag that is None or '' raises a TypeError; a key that nothing writes is always absent: mixed precision is off.",
    ),
)


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    for path, change in review.changes.items():
        module = change.after
        for call in module.calls():
            name = review.after.dotted(module.scope_of(call), call.func)
            if name in AUTOCAST and change.changed(call):
                enabled = argument(call, "enabled", AUTOCAST[name])
                if enabled is not None:
                    yield from _no_bool(both, module, call, enabled)
            if (name in AUTOCAST or name in GRAD_SCALER) and change.changed(call):
                positions = {**AUTOCAST, **GRAD_SCALER}
                enabled = argument(call, "enabled", positions[name or ""])
                if enabled is not None:
                    yield from _unwritten(both, path, module, call, enabled)
        if "sys.modules" in module.text:
            yield from _loaded(both, module)
    yield from _alone(both)


def _no_bool(both: Mixed, module: Module, call: ast.Call, enabled: ast.expr) -> Iterator[Doubt]:
    found = _not_bool(both, module.scope_of(enabled), enabled)
    if found is not None:
        message = f"autocast takes a bool: enabled={ast.unparse(enabled)} is {found}, which raises a TypeError; write bool(...)"
        yield both.review.doubt(module, call, "AMP532", "enabled=", message, "refuse")


def _not_bool(both: Mixed, scope: Scope, expr: ast.expr) -> str | None:
    """A value that an expression surely may have and that is no bool, spelled; None where none is known."""
    if isinstance(expr, ast.BoolOp):
        for value in expr.values:
            if (found := _not_bool(both, scope, value)) is not None:
                return found
        return None
    if isinstance(expr, ast.Compare | ast.UnaryOp):
        return None
    if isinstance(expr, ast.Constant):
        return None if isinstance(expr.value, bool) else repr(expr.value)
    if isinstance(expr, ast.Attribute):
        option = _option(both, expr.attr)
        if option is not None:
            return option
    if isinstance(expr, ast.Name):
        binder = scope.binder(expr.id)
        if binder is not None and all(isinstance(n, ast.Assign) for n in binder.bindings[expr.id]):
            for origin in both.after.values.origins(scope, expr):
                if isinstance(origin.node, ast.Constant) and not isinstance(origin.node.value, bool):
                    return f"{origin.node.value!r} (line {origin.line} of {origin.module.path})"
    return None


def _option(both: Mixed, name: str) -> str | None:
    """What an argparse option may be that is no bool; None where it always is one, or is not found just once."""
    found: list[tuple[Module, ast.Call]] = []
    for module in both.after.modules:
        if "add_argument" not in module.text or name.replace("_", "-") not in module.text.replace("_", "-"):
            continue
        for call in module.calls():
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument" and _dest(call) == name:
                found.append((module, call))
    if len(found) != 1:
        return None
    module, call = found[0]
    action = next((k.value for k in call.keywords if k.arg == "action"), None)
    kind = next((ast.unparse(k.value) for k in call.keywords if k.arg == "type"), None)
    default = next((k.value for k in call.keywords if k.arg == "default"), None)
    where = f"(option of line {call.lineno}, {module.path})"
    if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
        if isinstance(default, ast.Constant) and not isinstance(default.value, bool):
            return f"{default.value!r} {where}"
        return None
    if action is not None or any(k.arg is None for k in call.keywords):
        return None
    if isinstance(default, ast.Constant) and not isinstance(default.value, bool):
        return f"{default.value!r} {where}"
    if default is None:
        return f"None {where}"
    return f"an {kind} {where}" if kind in ("int", "float", "str") else None


def _dest(call: ast.Call) -> str | None:
    for keyword in call.keywords:
        if keyword.arg == "dest" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = [n for n in names if n.startswith("--")] or names
    return long[0].lstrip("-").replace("-", "_") if long else None


def _unwritten(both: Mixed, path: str, module: Module, call: ast.Call, enabled: ast.expr) -> Iterator[Doubt]:
    """`enabled="amp" in checkpoint` where what is saved has another key now."""
    for node in ast.walk(enabled):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.In):
            continue
        key = node.left.value if isinstance(node.left, ast.Constant) else None
        if not isinstance(key, str) or not isinstance(node.comparators[0], ast.Name | ast.Attribute):
            continue
        written = _written(both.review.after.modules.values(), key)
        if not written and _written(both.review.before.modules.values(), key):
            message = f"nothing writes the key {key!r} any more: {ast.unparse(node)} is False for every file saved from now on"
            yield both.review.doubt(module, call, "AMP532", "enabled=", message, "refuse")


def _written(modules: Iterable[Module], key: str) -> bool:
    for module in modules:
        if repr(key)[1:-1] not in module.text:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Dict) and any(isinstance(k, ast.Constant) and k.value == key for k in node.keys):
                return True
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                if isinstance(node.slice, ast.Constant) and node.slice.value == key:
                    return True
            if isinstance(node, ast.keyword) and node.arg == key:
                return True
    return False


def _loaded(both: Mixed, module: Module) -> Iterator[Doubt]:
    """`"apex" in sys.modules` where nothing imports Apex any more."""
    if any(_imports(m) for m in both.after.modules):
        return
    if not any(_imports(m) for m in both.near):
        return
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Constant)
            and node.left.value in ("apex", "apex.amp")
        ):
            if isinstance(node.ops[0], ast.In | ast.NotIn) and ast.unparse(node.comparators[0]) == "sys.modules":
                message = "asks whether Apex is loaded, and nothing loads it any more: the answer is always no"
                yield both.review.doubt(module, node, "AMP532", "sys.modules", message, "refuse")


def _imports(module: Module) -> bool:
    return "apex" in module.text and any(
        (isinstance(n, ast.Import) and any(a.name.split(".")[0] == "apex" for a in n.names))
        or (isinstance(n, ast.ImportFrom) and not n.level and (n.module or "").split(".")[0] == "apex")
        for n in ast.walk(module.tree)
    )


def _alone(both: Mixed) -> Iterator[Doubt]:
    """A scaler that scales while no forward of the program is in any region."""
    review = both.review
    if review.wish.dtype != "float16":
        return
    modules = review.after.modules.values()
    with_region = {m for m in modules if "autocast" in m.text}
    for change in review.changes.values():
        module = change.after
        if "GradScaler(" not in module.text or module in with_region:
            continue
        last = module.name.rpartition(".")[2]
        if any(m.name.rpartition(".")[2] in module.text or last in m.text for m in with_region):
            continue
        for call in module.calls():
            name = review.after.dotted(module.scope_of(call), call.func)
            if name not in GRAD_SCALER or not change.changed(call):
                continue
            enabled = argument(call, "enabled", GRAD_SCALER[name])
            if isinstance(enabled, ast.Constant) and not enabled.value:
                continue
            if not any(
                isinstance(c.func, ast.Attribute) and c.func.attr == "scale" for m in modules for c in m.calls()
            ):
                continue
            message = (
                "the loss is scaled, but no forward in sight runs under autocast: the program trains in float32 with a "
                "GradScaler; put the forward and the loss, wherever they are, in a region"
            )
            yield review.doubt(module, call, "AMP532", "GradScaler", message, "review")
            break
