"""Names that a scope imports and then gives another value: `from nets import small`, `small = load()`. They are variables of
its own, and what it puts there is in no way in the file that it imported from."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.reading.program.module import Scope
from amp_migrate.reading.program.tree import walk

if TYPE_CHECKING:
    from amp_migrate.reading.program.project import Project


def is_given_anew(owner: Scope, name: str) -> bool:
    """Whether a scope gives a name that it imports a value that is another than what it imported, as `model.cuda()` is not; a
    call of the name gives another."""
    bindings = owner.bindings.get(name, ())
    return len(bindings) > 1 and any(_is_other(owner, name, binding) for binding in bindings)


def _is_other(owner: Scope, name: str, binding: ast.AST) -> bool:
    parents = owner.module.parents
    stmt = parents.get(binding) if isinstance(binding, ast.Name) else None
    if not isinstance(stmt, ast.Assign):
        return False
    named = (n for n in walk(stmt.value) if isinstance(n, ast.Name) and n.id == name)
    return all(isinstance(call := parents.get(n), ast.Call) and call.func is n for n in named)


def link(project: Project) -> None:
    """Let what such a name is imported from flow to it: it may hold that, too."""
    for module in project.modules:
        for scope in module.scopes.values():
            for name, target in scope.imports.items():
                if is_given_anew(scope, name) and (slot := project.exported(target)) is not None:
                    project.pass_on(slot, project.bound_slot(scope, name))
