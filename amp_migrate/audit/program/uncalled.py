"""Functions that went with all that called them: what stood in them ran for nobody else."""

from __future__ import annotations

import ast

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.program import Program


def uncalled_now(before: Program, after: Program, change: Change) -> set[ast.stmt]:
    """The functions of a file that something read before and nothing reads now, and that are gone as a whole."""
    left = {s.name for s in syntax.every(change.after.tree, ast.FunctionDef)}
    return {
        stmt
        for stmt in change.removed
        if isinstance(stmt, ast.FunctionDef)
        and stmt.name not in left
        and change.before.function_around(stmt) is None
        and _read(before, change.before, stmt.name)
        and not _read(after, change.after, stmt.name)
    }


def _read(program: Program, home: Module, name: str) -> bool:
    """Whether a file reads a function of its own, or another one does, by whatever name it gives it."""
    full = f"{home.name}.{name}"
    if any(home.function_around(n) is None or not _within(home, n, name) for n in home.loads.get(name, ())):
        return True
    for spelled in program.spelled(name):
        for module in program.having(spelled):
            for node in module.loads.get(spelled, ()) if module is not home else ():
                found = program.dotted(module.scope_of(node), node)
                if found is not None and (found == full or found.endswith(f".{full}")):
                    return True
    return False


def _within(home: Module, node: ast.AST, name: str) -> bool:
    """Whether something stands in a function of a name: it calls itself."""
    return any(isinstance(a, ast.FunctionDef) and a.name == name for a in home.ancestors(node))
