"""Who may still ask a file whether Apex is installed: what stays with Apex, and files that are not given."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import tied
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.output import Output

NAMED = 3  # as many files are named


def apex_stays(project: Project, module: Module, output: Output) -> bool:
    """Whether some of the program that a file belongs to goes on needing Apex, so that whether it is installed is still a
    question."""
    return any(map(output.stays, tied(project, [module])))


def never_read(project: Project, module: Module, node: ast.Import | ast.ImportFrom) -> bool:
    """Whether nothing reads, or ever read, what an import brings: it only asks whether that is there."""
    bound = [(a.asname or a.name).split(".")[0] for a in node.names]
    scope = module.scope_of(node)
    handed = scope.is_module and any(True for name in bound for _ in project.handed_on.importing(module, name))
    return not handed and not any(map(scope.reads, bound))


def hangs_on(guard: ast.Try, read: Callable[[str], bool]) -> bool:
    """Whether anything hangs on what a guard asks: more than flags that nothing reads."""
    blocks = (guard.body, *(h.body for h in guard.handlers), guard.orelse, guard.finalbody)
    return any(not _asks_nothing(stmt, read) for block in blocks for stmt in block)


def _asks_nothing(stmt: ast.stmt, read: Callable[[str], bool]) -> bool:
    if isinstance(stmt, ast.Assign):
        names = [t.id for t in stmt.targets if isinstance(t, ast.Name)]
        return isinstance(stmt.value, ast.Constant) and len(names) == len(stmt.targets) and not any(map(read, names))
    return isinstance(stmt, (ast.Pass, ast.Import, ast.ImportFrom))


def not_given(project: Project, module: Module, flags: Collection[str]) -> list[Module]:
    """The files that are not among those given and may ask: they read one of some flags, or have to do with Apex themselves,
    and it is not decided here whether they go on to."""
    others = project.modules if len(project.targets) < len(project.modules) else []
    others = [m for m in others if m not in project.targets]
    if not others:
        return []
    readers = {m for flag in flags for m, _ in project.handed_on.readers(module, flag)}
    importing = {m for flag in flags for m, _ in project.handed_on.importing(module, flag)}
    near = tied(project, [module])
    return [m for m in others if m in readers | importing or (m in near and project.may_name_apex(m))]


def awaited(project: Project, module: Module, node: ast.Import | ast.ImportFrom, output: Output) -> str | None:
    """Why an import of Apex stays until other files are given, too; None where it does not wait for any."""
    guard = next((a for a in module.ancestors(node) if isinstance(a, ast.Try)), None)
    bound = {(a.asname or a.name).split(".")[0] for a in node.names}
    told = {
        t.id for s in walk(guard or node) if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)
    }
    edits = output.edit(module)
    if apex_stays(project, module, output) or any(
        not edits.gone(n) for name in bound for n in module.loads.get(name, ())
    ):
        return None
    others = sorted(m.display for m in not_given(project, module, bound | told))
    if not others:
        return None
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    return f"stays until {', '.join(others[:NAMED])}{more} is given, too, which may ask this file for Apex"
