"""What a function is told by names of its file that hold one constant for good: `USE_NATIVE = False`."""

from __future__ import annotations

import ast
from collections.abc import Set

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.facts import Facts, constant
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module


def fixed(function: Function, asked: Set[str]) -> Facts:
    """Of such names those that a function's tests ask for."""
    held = _held(function.module)
    names = (n for n in asked if n in held and function.scope.binder(n) is function.module.top)
    return frozenset(fact for name in names for fact in constant(name, held[name]))


@kept
def _held(module: Module) -> dict[str, ast.Constant]:
    """The names that a file gives a constant, in one statement of its own that stands under no test, and nothing else."""
    found: dict[str, ast.Constant] = {}
    outer = {n for stmt in syntax.every(module.tree, ast.Global) for n in stmt.names}
    for stmt in module.tree.body:
        if not isinstance(stmt, ast.Assign) or not isinstance(stmt.value, ast.Constant):
            continue
        for target in stmt.targets:
            if isinstance(target, ast.Name) and target.id not in outer and len(module.top.bindings[target.id]) == 1:
                found[target.id] = stmt.value
    return found
