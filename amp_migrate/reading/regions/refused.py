"""What does not go into a region: binary_cross_entropy, which raises under autocast, and a backward in the forward."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import called_name
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

    return project.holding("BCELoss", gives)
