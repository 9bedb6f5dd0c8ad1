"""Which of two files of one name an import means, by what is taken of it."""

from __future__ import annotations

import ast

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module


@kept
def only_in(top: Module, beside: Module, importer: Module) -> bool:
    """Whether the file at the top of the project has all that another takes of what it imports by its bare name, and the file
    of that name beside it has none: the folder is not that of the script that is run."""
    name, taken = top.name, set[str]()
    for node in syntax.every(importer.tree, ast.ImportFrom):
        taken |= {a.name for a in node.names} if node.module == name and not node.level else set()
    for whole in syntax.every(importer.tree, ast.Import):
        if any(a.name == name and a.asname is None for a in whole.names):
            held = (importer.parents.get(n) for n in importer.loads.get(name, ()))
            taken |= {n.attr for n in held if isinstance(n, ast.Attribute)}
    if not taken or beside.stars or "*" in taken:
        return False
    return beside.top.bindings.keys().isdisjoint(taken) and top.top.bindings.keys() >= taken
