"""Which modules run in one process with a call of `initialize`.

Apex patches torch for the whole process, and for no other one: a script of its own that never comes by the call, an
evaluation tool or a converter beside the training script, runs without mixed precision however much code they share.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.definitions import ClassInfo, Function, dotted
from amp_migrate.reading.lookup import Lookup, Slot
from amp_migrate.reading.module import Module, Scope


def in_process(project: Lookup, starts: Iterable[Module]) -> frozenset[Module]:
    """The modules that may run in one process with one of `starts`.

    Left out are scripts that do not import any of them, directly or through others, and what only such scripts import.
    A module that nothing imports but that is no script may be loaded by name, and stays.
    """
    starts = set(starts)
    imports = project.imports
    imported = set().union(*imports.values())
    roots = [m for m in project.modules if m not in imported]
    live: set[Module] = set(starts)
    for root in roots:
        reached = _reached(imports, root)
        if not _is_script(root) or reached & starts:
            live |= reached
    # Modules that import each other in a ring have no root: they stay too.
    ringed = set(project.modules) - _reached(imports, *roots)
    return frozenset(live | ringed)


def tied(project: Lookup, starts: Iterable[Module]) -> frozenset[Module]:
    """The modules that imports tie to one of `starts`: those that import it, through others too, and all they import."""
    importers: dict[Module, set[Module]] = {module: set() for module in project.modules}
    for module, others in project.imports.items():
        for other in others:
            importers[other].add(module)
    return frozenset(_reached(project.imports, *_reached(importers, *starts)))


def module_of(slot: Slot) -> Module | None:
    """The module that a slot lies in, where it lies in one."""
    holder = slot.holder
    while isinstance(holder, Slot):
        holder = holder.holder
    return holder.module if isinstance(holder, (Scope, Function, ClassInfo)) else None


def _reached(imports: dict[Module, set[Module]], *starts: Module) -> set[Module]:
    seen, waiting = set(starts), list(starts)
    while waiting:
        for module in imports[waiting.pop()] - seen:
            seen.add(module)
            waiting.append(module)
    return seen


def _is_script(module: Module) -> bool:
    """Whether a module is started by itself: it asks for `__main__`, or reads the command line as it is loaded."""
    for stmt in module.tree.body:
        if isinstance(stmt, ast.If) and any(
            isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(stmt.test)
        ):
            return True
        if isinstance(stmt, (ast.Assign, ast.Expr)) and isinstance(stmt.value, ast.Call):
            if (dotted(stmt.value.func) or "").rpartition(".")[2] in ("parse_args", "parse_known_args"):
                return True
    return False
