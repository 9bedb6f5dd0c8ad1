"""Steps that an optimizer of the program makes in its own `step`, where that is what a scaler steps: `LARS(sgd)`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk

if TYPE_CHECKING:
    from amp_migrate.reading.units.unit import Step


def made_by_wrappers(
    project: Project, steps: Sequence[Step], optimizers: Collection[Slot], together: Collection[Module]
) -> dict[Step, ClassInfo]:
    """Those of some steps that only the `step` of an optimizer makes which is stepped by others of them, and the class of that
    one: by then the scaler has unscaled its gradients, and found them finite. Another object of that class, which is stepped
    elsewhere, is none of the `optimizers`."""
    calls = {s.call for s in steps}
    found: dict[Step, ClassInfo] = {}
    for step in steps:
        method = project.function_of(step.module, step.call)
        if method is None or method.cls is None or method.name != "step":
            continue
        callers = [
            call
            for module, call in project.calls.get(method, ())
            if module in together and not _of_another(project, module, call, optimizers)
        ]
        if callers and calls.issuperset(callers) and _has_groups(method.cls):
            found[step] = method.cls
    return found


def _of_another(project: Project, module: Module, call: ast.Call, optimizers: Collection[Slot]) -> bool:
    """Whether what a call steps is seen to be made, and to be none of some optimizers."""
    slot = project.slot(module, call.func.value) if isinstance(call.func, ast.Attribute) else None
    return slot is not None and bool(project.instances.get(slot)) and slot not in optimizers


def _has_groups(cls: ClassInfo) -> bool:
    """Whether objects of a class have `param_groups`, which a scaler asks for."""
    if any(name.rpartition(".")[2].endswith("Optimizer") for c in cls.ancestry() for name in c.base_names):
        return True
    return any(
        (isinstance(n, ast.FunctionDef) and n.name in ("param_groups", "__getattr__"))
        or (isinstance(n, ast.Attribute) and n.attr == "param_groups" and isinstance(n.ctx, ast.Store))
        for c in cls.ancestry()
        for n in walk(c.node)
    )
