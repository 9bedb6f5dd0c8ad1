"""Where the native side of a program looks for its scale in a checkpoint, if that is not where Apex's side wrote it.

Apex: https://nvidia.github.io/apex/amp.html#checkpointing
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.load_state_dict

Reported as AMP123: see `branch.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.twin.external_scalers import known
from amp_migrate.reading.twin.sides import NativeTwin
from amp_migrate.rules.migration import Migration


def old_checkpoints(m: Migration, twin: NativeTwin) -> None:
    """Report keys that differ: of a library's scalers, of the program's own, and written beside each other."""
    for module, node, apex, native in (*_of_libraries(m), *_of_classes(m, twin), *_of_states(m)):
        m.output.note(
            module,
            node,
            "AMP123",
            "state_dict_key",
            f'checkpoints written under Apex hold its scale under "{apex}", the native scaler looks under "{native}": convert '
            f"those to be resumed with amp-migrate checkpoint OLD NEW --key {apex} --to-key {native}",
            "look",
        )


def _of_libraries(m: Migration) -> Iterator[tuple[Module, ast.AST, str, str]]:
    for init in m.unit.inits:
        external = known(m.project, init.module, init.module.block(init.stmt))
        if external is not None and external.key != external.native_key:
            yield init.module, init.call, external.key, external.native_key


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
