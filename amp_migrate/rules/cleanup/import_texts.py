"""An import statement of which only some names stay."""

from __future__ import annotations

import ast
import re

from amp_migrate.reading.program.module import Module
from amp_migrate.writing.edits import Edits


def keep_only(edits: Edits, module: Module, node: ast.Import | ast.ImportFrom, kept: list[ast.alias]) -> None:
    """Leave some names of an import; without any, it goes."""
    if kept:
        edits.replace(node, _import_text(module, node, kept))
    else:
        edits.delete(node)


def _import_text(module: Module, node: ast.Import | ast.ImportFrom, kept: list[ast.alias]) -> str:
    """An import statement of which only some names stay, on the lines they stood on."""
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import(kept))
    text = _without(module, node, [a for a in node.names if a not in kept]) if node.end_lineno != node.lineno else None
    return text or ast.unparse(ast.ImportFrom(node.module, kept, node.level))


def _without(module: Module, node: ast.ImportFrom, gone: list[ast.alias]) -> str | None:
    """An import spread over several lines, without some of its names; None where that is no import any more."""
    lines = module.source(node).encode().splitlines(keepends=True)
    for alias in reversed(gone):
        row = alias.lineno - node.lineno
        shift = node.col_offset if row == 0 else 0
        before, after = lines[row][: alias.col_offset - shift], lines[row][(alias.end_col_offset or 0) - shift :]
        left = re.sub(rb"^[ \t]*,?[ \t]*", b"", after)
        if not before.strip() and (not left.strip() or left.startswith(b"#")):
            del lines[row]
        else:
            lines[row] = before + left if left.strip() else before.rstrip() + left
    text = b"".join(lines).decode()
    kept = {(a.name, a.asname) for a in node.names if a not in gone}
    try:
        (stmt,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return None
    same = isinstance(stmt, ast.ImportFrom) and {(a.name, a.asname) for a in stmt.names} == kept
    return text if same and len(lines) > 1 else None
