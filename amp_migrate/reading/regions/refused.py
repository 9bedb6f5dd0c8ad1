"""What does not go into a region: binary_cross_entropy, which raises under autocast, and a backward in the forward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import called_name, in_rows
from amp_migrate.reading.program.handed_back import put_in, same_object
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk


def refuses(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether a call computes binary_cross_entropy."""
    if (module.qualify(call.func) or "").rpartition(".")[2] == "binary_cross_entropy":
        return True
    if isinstance(call.func, ast.Call) and module.qualify(call.func.func) == "torch.nn.BCELoss":
        return True
    slot = project.slot(module, call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
    return slot in project.once(_bce_slots)


def second_order(module: Module, node: ast.Call) -> bool:
    """`torch.autograd.grad(..., create_graph=True)`: a backward, so outside of autocast."""
    return module.qualify(node.func) == "torch.autograd.grad"


def _bce_slots(project: Project) -> set[Slot]:
    """Variables that hold a `torch.nn.BCELoss`."""

    def gives(_: Module, stmt: ast.Assign) -> bool:
        calls = (n for n in walk(stmt.value) if isinstance(n, ast.Call))
        return len(stmt.targets) == 1 and any(called_name(call) == "BCELoss" for call in calls)

    given = {slot for m in project.modules if "BCELoss" in m.text for slot in _given(project, m)}
    return project.holding("BCELoss", gives) | project.reaches(given)


def _given(project: Project, module: Module) -> Iterator[Slot]:
    """The containers of a file that a `BCELoss` is put into, and the parameters that are given one."""
    put: list[tuple[ast.expr, ast.expr]] = []
    for call, _ in module.calls:
        put += [p] if (p := put_in(call)) is not None else []
        for function in project.resolved.get(call, ()):
            for name, value in project.arguments(function, call):
                if _is_bce(value):
                    yield Slot(function.scope, name)
    for call, func in module.method_calls.get("update", ()):
        put += [(func.value, value) for value in (*call.args, *(k.value for k in call.keywords))]
    for stmt in module.of(ast.Assign):
        put += [(target.value, stmt.value) for target in stmt.targets if isinstance(target, ast.Subscript)]
    put += [p for stmt in module.of(ast.AugAssign) if (p := put_in(stmt)) is not None]
    for holder, value in put:
        slot = project.slot(module, holder) if _is_bce(value) else None
        if slot is not None:
            yield slot
            yield from (Slot(slot, f"[*{place}]") for place, item in in_rows(value) if _is_bce(item))


def _is_bce(value: ast.expr) -> bool:
    """Whether one is made here, as it is or in a list or mapping."""
    value = same_object(value) or value
    if isinstance(value, (ast.List, ast.Tuple)):
        return any(map(_is_bce, value.elts))
    if isinstance(value, ast.Dict):
        return any(map(_is_bce, value.values))
    return isinstance(value, ast.Call) and called_name(value) == "BCELoss"
