"""What a file calls something of torch: by the shortest way its own imports give."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module, Scope


def native_name(module: Module, target: str, scope: Scope, before: int | None = None) -> str | None:
    """How `target` (`torch.optim.AdamW`) can be written in a scope with the imports in sight; None if it cannot.

    Code at line `before` sees, of the imports of its own scope, only those above it.
    """
    found: list[tuple[int, str]] = []
    for outer in scope.chain():
        for bound, source in outer.imports.items():
            if target != source and not target.startswith(source + "."):
                continue
            if scope.lookup(bound) is outer and _steady(module, outer, bound, before if outer is scope else None):
                found.append((len(source), bound + target[len(source) :]))
    return max(found)[1] if found else None


def exact_name(module: Module, target: str, scope: Scope, before: int | None = None) -> str | None:
    """The name under which the file already imports exactly `target`."""
    name = native_name(module, target, scope, before)
    return name if name is not None and "." not in name else None


def _steady(module: Module, scope: Scope, name: str, before: int | None) -> bool:
    """A name bound by nothing but imports that always run."""
    for binding in scope.bindings[name]:
        if not isinstance(binding, (ast.Import, ast.ImportFrom)):
            return False
        if not any(binding is s for s in scope.body) or (before is not None and binding.lineno >= before):
            return False
    return True
