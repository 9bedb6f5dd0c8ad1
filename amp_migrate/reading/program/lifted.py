"""An import of Apex that stands in one function, and is read as if it were the file's: `import apex` in `__init__`, and
`apex.amp.initialize(...)` in another method.

Python binds the name in the first function alone: every run that came to the set-up ended in a NameError. What is meant is in
no doubt where the file binds the name nowhere else, and sets Apex up by it: that is read as if the import were the file's.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.reading.program.tree import root_of

if TYPE_CHECKING:
    from amp_migrate.reading.program.module import Module
    from amp_migrate.reading.program.scope import Scope

SET_UP = "apex.amp.initialize"


def lifted(module: Module) -> dict[str, Scope]:
    """The names that are to be taken for the file's, each with the function that imports it."""
    if "apex" not in module.text or "initialize" not in module.text or "globals" in module.text or module.star_imports:
        return {}
    found: dict[str, Scope] = {}
    for node in (n for n in module.of(ast.Attribute) if n.attr == "initialize"):
        root = root_of(node)
        if not isinstance(root, ast.Name) or module.scope_of(root).lookup(root.id) is not None:
            continue
        importing = [s for s in module.scopes.values() if s.is_function and root.id in s.imports]
        rest = ast.unparse(node).partition(".")[2]
        if importing and {f"{s.imports[root.id]}.{rest}" for s in importing} == {SET_UP}:
            found[root.id] = importing[0]
    return found
