"""Which of two files of one name an import means, by what is taken of it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

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


def outer_names(modules: Sequence[Module]) -> frozenset[str]:
    """The packages, not there themselves, by which files import others of the project that lie at its top, where one of them
    edits `sys.path` for it: two files or more, with all that is taken of these."""
    tops = {m.name: m for m in modules}
    asked: dict[str, list[tuple[str, list[str]]]] = {}
    for module in modules if any("sys" in m.words and "sys.path" in m.text for m in modules) else ():
        for node in syntax.every(module.tree, ast.ImportFrom):
            first, _, rest = (node.module or "").partition(".")
            if not node.level and first and first not in tops:
                asked.setdefault(first, []).append((rest, [a.name for a in node.names]))
        for whole in syntax.every(module.tree, ast.Import):
            for alias in whole.names:
                first, _, rest = alias.name.partition(".")
                if first not in tops:
                    asked.setdefault(first, []).append((rest, []))
    found: set[str] = set()
    for first, taken in asked.items():
        homes = {rest for rest, _ in taken}
        if len(homes) > 1 and all(rest in tops and _has_all(tops[rest], names) for rest, names in taken):
            found.add(first)
    return frozenset(found)


def _has_all(module: Module, names: Sequence[str]) -> bool:
    return bool(module.stars) or all(n == "*" or n in module.top.bindings for n in names)
