"""Messages that stand beside an import of Apex."""

from __future__ import annotations

import ast
import re

# What a message says of Apex, of importing it, or of finding it.
OF_IMPORTS = re.compile(r"apex|\bamp\b|nvidia|import|install|availab|found|path", re.IGNORECASE)


def speaks_of_more(stmt: ast.stmt) -> bool:
    """Whether a message says something that is true without Apex, too: `logger.info("16-bit training")`."""
    message = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call)
    return message and not OF_IMPORTS.search(ast.unparse(stmt))
