"""A field that holds Apex itself goes once nothing is reached through it: `self.apex = apex` for `self.apex.parallel...`.

Reported as AMP101: see `imports.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import is_none
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.migration import Output


def drop(project: Project, module: Module, output: Output) -> None:
    """Take out the assignments of one file, and what holds their place until then."""
    if not project.module_attributes:
        return
    for stmt in module.of(ast.Assign):
        target = stmt.targets[0] if len(stmt.targets) == 1 else None
        if not isinstance(target, ast.Attribute) or module.qualify(stmt.value) != "apex":
            continue
        if output.edit(module).gone(stmt.value) or not output.wants_at(module, stmt.value, "AMP101"):
            continue
        reads = list(_reads(project, target.attr))
        if not reads or any(where not in output.edits or not output.edits[where].gone(n) for where, n in reads):
            continue
        output.edit(module).delete(stmt)
        for placeholder in _placeholders(module, target.attr):
            output.edit(module).delete(placeholder)
        output.done(module, stmt.value, "AMP101", "apex", "nothing is reached through it any more", "as-is")


def _reads(project: Project, attribute: str) -> Iterator[tuple[Module, ast.AST]]:
    """Where a field may be read, by its name in a text, too."""
    for module in (m for m in project.modules if attribute in m.text):
        for node in module.nodes:
            read = isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load)
            if read or (isinstance(node, ast.Constant) and node.value == attribute):
                yield module, node


def _placeholders(module: Module, attribute: str) -> Iterator[ast.stmt]:
    for stmt in module.of(ast.Assign):
        target = stmt.targets[0] if len(stmt.targets) == 1 else None
        of_class = isinstance(target, ast.Name) and target.id == attribute and module.scope_of(stmt).is_class
        of_object = isinstance(target, ast.Attribute) and target.attr == attribute
        if (of_class or of_object) and is_none(stmt.value):
            yield stmt
