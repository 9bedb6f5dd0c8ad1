"""Tests that are skipped where Apex is not installed run without it, once nothing that they test needs it.

Apex: https://github.com/NVIDIA/apex
Native: https://docs.pytest.org/en/stable/how-to/skipping.html
"""

from __future__ import annotations

import ast

from amp_migrate.options import Options
from amp_migrate.reading.program.definitions import is_none
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.migration import Output

# What skips a test, and whether it does so where its condition holds.
SKIPS = {"pytest.mark.skipif": True, "unittest.skipIf": True, "unittest.skipUnless": False}


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Take decorators off that ask for nothing but Apex, where a program was migrated whole."""
    if not project.may_name_apex(module) or not any(name.rpartition(".")[2] in module.text for name in SKIPS):
        return
    if not output.units or output.by_hand():
        return
    for call, _ in module.calls:
        holder = module.parents.get(call)
        if not isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or not call.args:
            continue
        skips = SKIPS.get(module.qualify(call.func) or "")
        if skips is not None and call in holder.decorator_list and _is_missing(project, module, call.args[0]) is skips:
            output.edit(module).undecorate(call)
            message = f"{holder.name} was skipped for want of Apex, which it needs no more: it runs now"
            output.note(module, call, "AMP101", ast.unparse(call.func), message)


def _is_missing(project: Project, module: Module, test: ast.expr) -> bool | None:
    """Whether a condition holds where Apex is missing (True), or where it is there (False); None where it asks more."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _is_missing(project, module, test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        right = test.comparators[0]
        if is_none(right) and _is_apex(project, module, test.left):
            return isinstance(test.ops[0], ast.Is)
        return None
    return False if _is_apex(project, module, test) else None


def _is_apex(project: Project, module: Module, node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and project.qualify(module, node) in ("apex", "apex.amp")
