"""An import of Apex that stands in one function, and is read as if it were the file's: `import apex` in `__init__`, and
`apex.amp.initialize(...)` in another method.

Python binds the name in the first function alone: every run that came to the set-up ended in a NameError. What is meant is in
no doubt where the file binds the name nowhere else, and sets Apex up by it: that is read as if the import were the file's. Where
the program catches the error and goes on, it trained in float32, and is left to that.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.reading.program.tree import root_of, walk

if TYPE_CHECKING:
    from amp_migrate.reading.program.module import Module
    from amp_migrate.reading.program.scope import Scope

SET_UP = "apex.amp.initialize"
CATCHING = ("NameError", "Exception", "BaseException")


def lifted(module: Module) -> dict[str, Scope]:
    """The names that are to be taken for the file's, each with the function that imports it."""
    if "apex" not in module.text or "initialize" not in module.text or "globals" in module.text or module.star_imports:
        return {}
    found: dict[str, Scope] = {}
    for node in (n for n in module.of(ast.Attribute) if n.attr == "initialize"):
        root = root_of(node)
        if not isinstance(root, ast.Name) or module.scope_of(root).lookup(root.id) is not None or caught(module, root):
            continue
        importing = [s for s in module.scopes.values() if s.is_function and root.id in s.imports]
        rest = ast.unparse(node).partition(".")[2]
        if importing and {f"{s.imports[root.id]}.{rest}" for s in importing} == {SET_UP}:
            found[root.id] = importing[0]
    return found


def caught(module: Module, node: ast.AST) -> bool:
    """Whether a NameError at a place is caught in its function, and what catches it goes on."""
    child: ast.AST = node
    for parent in module.ancestors(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
        if isinstance(parent, ast.Try) and child in parent.body:
            taking = next((h for h in parent.handlers if _takes(h)), None)
            if taking is not None:
                return not any(_leaves(n) for s in taking.body for n in walk(s))
        child = parent
    return False


def _takes(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or ast.unparse(kind) in CATCHING for kind in kinds)


def _leaves(node: ast.AST) -> bool:
    ends = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("exit", "_exit", "quit")
    return ends or isinstance(node, ast.Raise)
