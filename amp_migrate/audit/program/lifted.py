"""An import of Apex in one function by which the whole file sets it up: what it meant is read, and not the NameError that
every run ended in which came there.

Asked of each file by itself: a name that nothing else binds, that imports of Apex in functions bind to one thing, and that another
function calls `initialize` by.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.scope import Scope


def meant_for_all(
    scopes: Iterable[Scope], attributes: Iterable[ast.Attribute], at: Mapping[ast.AST, Scope]
) -> list[tuple[Scope, str]]:
    """The functions that import such a name, each with it."""
    importing: dict[str, list[tuple[Scope, str]]] = {}
    for scope in (s for s in scopes if isinstance(s.node, (ast.FunctionDef, ast.AsyncFunctionDef))):
        for name, nodes in scope.bindings.items():
            for node in nodes:
                if (meant := _meant(node, name)) is not None:
                    importing.setdefault(name, []).append((scope, meant))
    found: list[tuple[Scope, str]] = []
    for node in attributes if importing else ():
        name, _, rest = syntax.text(node).partition(".")
        if node.attr != "initialize" or name not in importing or at[node].binder(name) is not None:
            continue
        if {f"{meant}.{rest}" for _, meant in importing[name]} == {"apex.amp.initialize"}:
            found += [(scope, name) for scope, _ in importing.pop(name)]
    return found


def _meant(node: ast.AST, name: str) -> str | None:
    """What of Apex's an import gives a name."""
    for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
        if isinstance(node, ast.ImportFrom) and (alias.asname or alias.name) == name:
            return f"{node.module}.{alias.name}" if (node.module or "").split(".")[0] == "apex" else None
        if isinstance(node, ast.Import) and (alias.asname or alias.name.split(".")[0]) == name:
            full = alias.name if alias.asname else name
            return full if full.split(".")[0] == "apex" else None
    return None
