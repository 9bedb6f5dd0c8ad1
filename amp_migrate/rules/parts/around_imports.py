"""Branches and `try`s around imports of Apex that nothing needs any more once these are gone, or torch's."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from amp_migrate.reading.program.tree import caught, within_apex
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.parts.branches import is_idle
from amp_migrate.rules.parts.imports import Binding, ImportEdits, bound_names


class AroundImports:
    """What stands around the imports of one file. `shared`: what another import binds in another branch."""

    def __init__(self, imports: ImportEdits, bindings: Sequence[Binding], shared: set[Binding]) -> None:
        self.module = imports.module
        self.edits = imports.edits
        self.imports = imports
        self.bindings = bindings
        self.shared = shared

    def fold_branches(self) -> None:
        """`if use_apex: from apex.parallel import DDP` / `else: DDP = torch…`: the other branch is enough."""
        for binding in self.bindings:
            parent = binding.other_branch
            gone = self.imports.removed.get(binding.stmt, [])
            if binding in self.shared or parent is None or binding.alias not in gone:
                continue
            mine = parent.body if any(s is binding.stmt for s in parent.body) else parent.orelse
            imports = [s for s in mine if isinstance(s, (ast.Import, ast.ImportFrom))]
            others = [a.asname or a.name.split(".")[0] for s in imports for a in s.names if a is not binding.alias]
            if not any(map(self._used, others)) and parent not in self.edits.statements:
                self.imports.lines.pop(binding.stmt, None)
                self.edits.splice(parent, "orelse" if mine is parent.body else "body")

    def fold_tries(self, live: Iterable[Site]) -> None:
        """A `try` that looked whether Apex is installed, around more than imports, keeps its body."""
        tries = {
            node: None
            for start in [*(b.stmt for b in self.bindings), *(s.stmt for s in live)]
            for node in self.module.ancestors(start)
            if isinstance(node, ast.Try) and node not in self.edits.statements
        }
        guards = {b.guard for b in self.bindings}
        for node in tries:
            if node in guards or node.orelse or node.finalbody or not _awaits_import(node):
                continue
            imported = [s for s in node.body if isinstance(s, (ast.Import, ast.ImportFrom))]
            if all(s in imported or isinstance(s, ast.Global) for s in node.body):
                continue  # goes with them
            apex = [s for s in imported if from_apex(s)]
            gone = {a for aliases in self.imports.removed.values() for a in aliases}
            names = {a.asname or a.name.split(".")[0] for s in apex for a in s.names if a not in gone}
            if apex == imported and apex and not any(map(self._used, names)):
                self.edits.splice(node, "body")

    def keep_fallbacks(self) -> None:
        """What a guard imports from torch where Apex is missing, under a name of its own, is imported always now."""
        for guard in {b.guard: None for b in self.bindings if b.guard is not None}:
            held = {name for s in guard.body for name in bound_names(s)}
            for stmt in [s for h in guard.handlers for s in h.body if isinstance(s, (ast.Import, ast.ImportFrom))]:
                names = bound_names(stmt)
                if stmt not in self.edits.statements and not names & held and any(map(self._used, names)):
                    self.edits.insert_before(guard, self.module.source(stmt))
                    self.edits.delete(stmt)

    def still_used(self, stmt: ast.ImportFrom, alias: ast.alias) -> bool:
        loads = self.module.loads.get(alias.asname or alias.name, ())
        return any(
            not self.edits.gone(n) and ((above := self.module.import_above(n)) is None or above[0] is stmt)
            for n in loads
        )

    def _used(self, name: str) -> bool:
        """Whether a name is still read in this file."""
        return any(not self.edits.gone(n) for n in self.module.loads.get(name, ()))


def _awaits_import(node: ast.Try) -> bool:
    """Whether a `try` catches nothing but a missing import, or ends in saying that Apex is missing."""
    for handler in node.handlers:
        kinds = caught(handler)
        tells = any("apex" in ast.unparse(s).lower() for s in handler.body if is_idle(s) or isinstance(s, ast.Raise))
        if not (kinds and kinds <= {"ImportError", "ModuleNotFoundError"}) and not tells:
            return False
    return True


def from_apex(stmt: ast.Import | ast.ImportFrom) -> bool:
    names = [stmt.module or ""] if isinstance(stmt, ast.ImportFrom) else [a.name for a in stmt.names]
    return all(within_apex(name) for name in names)
