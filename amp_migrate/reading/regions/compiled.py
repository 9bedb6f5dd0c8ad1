"""Networks that are TorchScript, `torch.jit.load(path)`: they call none of the functions that O1 patched, and ran in float32."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.handed_back import same_object
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project

COMPILING = frozenset(f"torch.jit.{name}" for name in ("load", "script", "freeze", "optimize_for_inference"))


def compiled(project: Project) -> set[Slot]:
    """The variables that may hold one; see `Project.once`."""

    def gives(module: Module, stmt: ast.Assign) -> bool:
        made = same_object(stmt.value)
        return len(stmt.targets) == 1 and isinstance(made, ast.Call) and module.qualify(made.func) in COMPILING

    return project.holding("jit", gives)
