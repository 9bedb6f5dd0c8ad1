"""Imports from torch that were written above a guard which stays stand with the file's own imports of torch.

The guard had the import of Apex's that they take the place of. Where it goes as a whole, they take its place.
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module
from amp_migrate.rules.parts.imports import bound_names
from amp_migrate.writing.edits import Code, Edits


def gather(module: Module, edits: Edits) -> None:
    """Move them below the last import of torch above the guard, unless what stands in between binds names anew."""
    body = module.tree.body
    for at, guard in enumerate(body):
        codes = [code for code in edits.before.get(guard, ()) if _imports_torch(code)]
        if not codes or not isinstance(guard, ast.Try) or guard in edits.statements:
            continue
        above = [n for n, s in enumerate(body[:at]) if s not in edits.statements and _is_torchs(s)]
        if above and not any(_may_bind(s, codes) for s in body[above[-1] + 1 : at]):
            left = [code for code in edits.before.pop(guard) if code not in codes]
            if left:
                edits.insert_before(guard, *left)
            edits.insert_after(body[above[-1]], *codes)


def _may_bind(stmt: ast.stmt, codes: list[Code]) -> bool:
    """Whether a statement may bind a name that imports bind."""
    names = {n for code in codes if isinstance(code, str) for s in ast.parse(code).body for n in bound_names(s)}
    return not isinstance(stmt, (ast.Import, ast.ImportFrom, ast.Expr)) or bool(bound_names(stmt) & {*names, "*"})


def _imports_torch(code: Code) -> bool:
    return isinstance(code, str) and code.startswith(("from torch.", "from torch import "))


def _is_torchs(stmt: ast.stmt) -> bool:
    names = [a.name for a in stmt.names] if isinstance(stmt, ast.Import) else []
    if isinstance(stmt, ast.ImportFrom) and not stmt.level:
        names = [stmt.module or ""]
    return any(name.split(".")[0] == "torch" for name in names)
