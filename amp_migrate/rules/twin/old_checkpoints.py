"""Where the native side of a program looks for its scale in a checkpoint, if that is not where Apex's side wrote it.

Apex: https://nvidia.github.io/apex/amp.html#checkpointing
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.load_state_dict

Reported as AMP123: see `branch.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.conditions.conjunctions import conjuncts
from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.definitions import ClassInfo, called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.twin.external_scalers import known, made
from amp_migrate.reading.twin.runs import Runs
from amp_migrate.reading.twin.sides import NativeTwin
from amp_migrate.rules.migration import Migration


def old_checkpoints(m: Migration, twin: NativeTwin) -> None:
    """Report keys that differ: of a library's scalers, of the program's own, and written beside each other."""
    for module, node, apex, native in (*_of_libraries(m), *_of_classes(m, twin), *_of_states(m)):
        where = f'under "{apex}", the native scaler looks under "{native}"'
        if apex == native:
            where = f'under "{apex}", where the native scaler looks, and in another form'
        m.output.note(
            module,
            node,
            "AMP123",
            "state_dict_key",
            f"checkpoints written under Apex hold its scale {where}: convert those to be resumed with amp-migrate checkpoint OLD NEW "
            f"--key {apex} --to-key {native}",
            "look",
        )


def keys_of_native_runs(m: Migration, twin: NativeTwin) -> None:
    """Report where a scale is looked up that only runs of the native side were asked for: `if fp16 and not args.apex:`."""
    saved = {_key(site.module, site.call) for site in m.unit.sites if site.call is not None}
    for module in twin.modules:
        runs = Runs(twin, module)
        for call, _ in module.calls_naming({"load_state_dict"}):
            given = call.args[0] if call.args else None
            key = given.slice if isinstance(given, ast.Subscript) else None
            holder = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            if not isinstance(key, ast.Constant) or "scaler" not in holder.lower() or m.edit(module).gone(call):
                continue
            parts = [p for b in branches_around(module, call) if b.holds for p in conjuncts(b.test.test)]
            if key.value in saved or any(repr(key.value) in ast.unparse(part) for part in parts):
                continue  # Apex's side wrote it as well, or it is looked for
            if any(twin.value(part) is True or (runs.differ(part) and runs.natively(part)) for part in parts):
                message = (
                    f"a checkpoint of a run that asked for Apex has no {key.value!r}, and such a run comes here now: it stops with a "
                    "KeyError. Ask for the key before, or begin with a new scale"
                )
                m.output.note(module, call, "AMP123", "load_state_dict", message, "review")


def _of_libraries(m: Migration) -> Iterator[tuple[Module, ast.AST, str, str]]:
    for init in m.unit.inits:
        external = known(m.project, init.module, init.module.block(init.stmt))
        if external is None:
            continue
        keys = _own_keys(m, init.module, {t for t, _, _ in made(m.project, init.module, init.module.block(init.stmt))})
        if keys:  # by which the program saves the state itself, whatever the class would call it
            yield from ((init.module, init.call, key, key) for key in keys)
        elif external.key != external.native_key:
            yield init.module, init.call, external.key, external.native_key


def _own_keys(m: Migration, module: Module, scalers: set[str]) -> list[str]:
    """The keys under which a program keeps the state of such an object: `{"scaler": loss_scaler.state_dict()}`."""
    names = {s.rpartition(".")[2] for s in scalers}
    found = [
        key
        for other in m.project.modules
        if other is module or names & {*other.loads}
        for call, _ in other.calls_naming({"state_dict"})
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value).rpartition(".")[2] in names
        if (key := _key(other, call)) is not None and (_saved(other, call) or _looked_up(m, key))
    ]
    return list(dict.fromkeys(found))


def _saved(module: Module, call: ast.Call) -> bool:
    around = (a for a in module.ancestors(call) if isinstance(a, ast.Call))
    return any("save" in called_name(a) for a in around)


def _looked_up(m: Migration, key: str) -> bool:
    """Whether the program takes an entry out of something by a key: `load_state_dict(checkpoint["scaler"])`."""
    return any(
        isinstance(n.slice, ast.Constant) and n.slice.value == key and isinstance(n.ctx, ast.Load)
        for module in m.project.modules
        if key in module.text
        for n in module.of(ast.Subscript)
    )


def _of_classes(m: Migration, twin: NativeTwin) -> Iterator[tuple[Module, ast.AST, str, str]]:
    """`state_dict_key = "amp"` of the class that goes, and another one of the class that stays."""
    for cls in twin.classes:
        own = _texts(cls)
        for other in m.project.classes.values():
            if other in twin.classes or other.module is not cls.module or "scale(" not in _source(other):
                continue
            for name, (stmt, text) in own.items():
                kept = _texts(other).get(name)
                if "key" in name and kept is not None and kept[1] != text:
                    yield cls.module, stmt, text, kept[1]


def _texts(cls: ClassInfo) -> dict[str, tuple[ast.stmt, str]]:
    """The attributes of a class that are texts."""
    found: dict[str, tuple[ast.stmt, str]] = {}
    for stmt in cls.node.body:
        if not isinstance(stmt, (ast.Assign, ast.AnnAssign)) or not isinstance(stmt.value, ast.Constant):
            continue
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        if isinstance(stmt.value.value, str):
            found |= {t.id: (stmt, stmt.value.value) for t in targets if isinstance(t, ast.Name)}
    return found


def _source(cls: ClassInfo) -> str:
    return cls.module.source(cls.node)


def _of_states(m: Migration) -> Iterator[tuple[Module, ast.AST, str, str]]:
    """`{"amp": amp.state_dict()}` on Apex's side, `{"scaler": scaler.state_dict()}` on the native one."""
    for site in m.unit.sites:
        if site.short != "state_dict" or site.call is None or (apex := _key(site.module, site.call)) is None:
            continue
        native = {
            key
            for call, _ in site.module.calls_naming({"state_dict"})
            if isinstance(call.func, ast.Attribute) and "scaler" in site.module.source(call.func.value).lower()
            if not m.edit(site.module).gone(call) and (key := _key(site.module, call)) is not None
        }
        if len(native) == 1 and apex not in native:
            yield site.module, site.call, apex, native.pop()


def _key(module: Module, call: ast.Call) -> str | None:
    """The key under which a call's value is stored."""
    node: ast.AST = call
    parent = module.parents.get(node)
    while isinstance(parent, ast.IfExp):
        node, parent = parent, module.parents.get(parent)
    key: ast.expr | None = None
    if isinstance(parent, ast.Dict) and isinstance(node, ast.expr) and node in parent.values:
        key = parent.keys[parent.values.index(node)]
    elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Subscript):
        key = parent.targets[0].slice
    elif isinstance(parent, ast.keyword):
        return parent.arg
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
