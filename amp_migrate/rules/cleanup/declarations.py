"""`global amp` in a function that no longer gives the name a value: the import or assignment that it was about has gone."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module
from amp_migrate.writing.edits import Edits


def drop_declarations(module: Module, edits: Edits, names: set[str]) -> None:
    """Delete the declarations of names that nothing in their function binds or reads any more."""
    for stmt in module.of(ast.Global):
        if names.issuperset(stmt.names) and all(_only_said(module, edits, stmt, name) for name in stmt.names):
            edits.delete(stmt)


def _only_said(module: Module, edits: Edits, stmt: ast.Global, name: str) -> bool:
    scope = module.scope_of(stmt)
    bound = [b for b in module.root.bindings.get(name, ()) if module.scope_of(b) is scope]
    reads = (n for n in module.loads.get(name, ()) if scope in module.scope_of(n).chain())
    gone = all(edits.gone(module.statement(b)) for b in bound) and name not in edits.emitted_names()
    return bool(bound) and gone and all(map(edits.gone, reads))
