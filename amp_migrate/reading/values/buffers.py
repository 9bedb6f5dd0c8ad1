"""What a network registers as one of its buffers: `self.register_buffer("grid", torch.zeros(2, 3))`, which is `self.grid` then."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project


def registered(project: Project, module: Module, attribute: ast.Attribute) -> list[tuple[Module, ast.expr]]:
    """The values of each registration that a field of an object may be."""
    scope = module.scope_of(attribute)
    cls = project.class_of(scope)
    if cls is None or not isinstance(attribute.value, ast.Name) or attribute.value.id != scope.self_name:
        return []
    found: list[tuple[Module, ast.expr]] = []
    for home in {c.module: None for c in cls.ancestry()}:
        for call, _ in home.method_calls.get("register_buffer", ()):
            given = [*call.args, *(k.value for k in call.keywords if k.arg == "tensor")]
            if len(given) < 2 or not isinstance(given[0], ast.Constant) or given[0].value != attribute.attr:
                continue
            owner = project.class_of(home.scope_of(call))
            if owner is not None and owner in cls.ancestry():
                found.append((home, given[1]))
    return found
