"""Which names are none of what an import of Apex brings."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.sites.apex import apex_imports, of_apex


def is_own(module: Module, node: ast.Name) -> bool:
    """Whether a name is a parameter or a variable of a scope which imports nothing of Apex, or what its own branch imports
    from elsewhere, or one that nothing binds where imports of Apex bring it to functions alone: then it is neither what an
    import of Apex brings nor a flag beside it."""
    above = module.import_above(node)
    if above is not None and above[1].split(".")[0] != "apex":
        return True
    owner = module.scope_of(node).lookup(node.id)
    if owner is None or owner.is_module:
        if not _brought_to_functions(module, node.id) or (owner is None and module.star_imports):
            return False
    return owner is None or not any(of_apex(target) for target in owner.imports.values())


def _brought_to_functions(module: Module, name: str) -> bool:
    """Whether imports of Apex bring a name, and all of them to functions alone."""
    scopes = [module.scope_of(n) for n in apex_imports(module) for a in n.names if (a.asname or a.name) == name]
    return bool(scopes) and all(s.is_function and name not in s.outer for s in scopes)
