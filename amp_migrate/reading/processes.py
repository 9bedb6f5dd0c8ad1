"""Which modules run in one process with a call of `initialize`.

Apex patches torch for the whole process, and for no other one: a script of its own that never comes by the call, an
evaluation tool or a converter beside the training script, runs without mixed precision however much code they share.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.reading.definitions import ClassInfo, Function, dotted
from amp_migrate.reading.lookup import Lookup, Slot
from amp_migrate.reading.module import Module, Scope


def in_process(project: Lookup, starts: Iterable[Module]) -> frozenset[Module]:
    """The modules that may run in one process with one of `starts`.

    Left out are scripts that do not import any of them, directly or through others, and what only such scripts import.
    A module that nothing imports but that is no script may be loaded by name, and stays.
    """
    starts = set(starts)
    imports = {module: set(_imported(project, module)) - {module} for module in project.modules}
    imported = set().union(*imports.values())
    roots = [m for m in project.modules if m not in imported]
    live: set[Module] = set(starts)
    for root in roots:
        reached = _reached(imports, root)
        if not _is_script(root) or reached & starts:
            live |= reached
    # Modules that import each other in a ring have no root: they stay too.
    ringed = set(project.modules) - set().union(*(_reached(imports, root) for root in roots))
    return frozenset(live | ringed)


def module_of(slot: Slot) -> Module | None:
    """The module that a slot lies in, where it lies in one."""
    holder = slot.holder
    while isinstance(holder, Slot):
        holder = holder.holder
    return holder.module if isinstance(holder, (Scope, Function, ClassInfo)) else None


def _reached(imports: dict[Module, set[Module]], start: Module) -> set[Module]:
    seen, waiting = {start}, [start]
    while waiting:
        for module in imports[waiting.pop()] - seen:
            seen.add(module)
            waiting.append(module)
    return seen


def _imported(project: Lookup, module: Module) -> Iterator[Module]:
    """The project's modules that a module imports, packages on the way included."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _prefixes(project, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = module.import_base(node)
            for alias in node.names:
                yield from _prefixes(project, f"{base}.{alias.name}")


def _prefixes(project: Lookup, name: str) -> Iterator[Module]:
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        yield from project.modules_named(".".join(parts[:length]))


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
