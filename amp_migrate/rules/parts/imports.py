"""Imports of Apex whose name can stay: `from apex.parallel import DistributedDataParallel as DDP` becomes torch's."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from amp_migrate.reading.program.module import FUNCTION_NODES, Module, Scope
from amp_migrate.reading.program.tree import identifiers, walk, within_apex
from amp_migrate.reading.sites.apex import public_name
from amp_migrate.rules.parts.branches import is_idle
from amp_migrate.writing.edits import Code, Edits
from amp_migrate.writing.names import native_name

APEX_WORDS = re.compile(r"_?(apex|fused|mixed)_?|^A(?=DDP$)", re.IGNORECASE)


@dataclass(eq=False)
class Binding:
    """One name that an import from Apex binds."""

    module: Module
    stmt: ast.ImportFrom
    alias: ast.alias
    scope: Scope
    target: str  # what it stands for: apex.parallel.DistributedDataParallel

    @property
    def name(self) -> str:
        return self.alias.asname or self.alias.name

    @property
    def neutral(self) -> bool:
        """A name that does not speak of Apex: it can stay on its counterpart."""
        return not speaks_of_apex(self.name)

    @property
    def plain(self) -> str:
        """The name without what speaks of Apex: `DDP` of `ApexDDP`."""
        return APEX_WORDS.sub("", self.name)

    @property
    def guard(self) -> ast.Try | None:
        """The `try` that only looks whether the import works."""
        parent = self.module.parents[self.stmt]
        if not isinstance(parent, ast.Try) or not any(s is self.stmt for s in parent.body):
            return None
        return parent if all(_imports_or_marks(s) for s in parent.body) else None

    @property
    def fallback(self) -> ast.stmt | None:
        """What binds the name where Apex is missing."""
        guard = self.guard
        blocks = [h.body for h in guard.handlers] if guard is not None else []
        return next((s for block in blocks for s in block if self.name in bound_names(s)), None)

    def imported_for(self, fallback: ast.stmt) -> list[ast.stmt]:
        """The imports beside a fallback that it reads."""
        handlers = self.guard.handlers if self.guard is not None else []
        beside = [s for h in handlers if fallback in h.body for s in h.body]
        imports = [s for s in beside if isinstance(s, (ast.Import, ast.ImportFrom)) and s is not fallback]
        return [s for s in imports if bound_names(s) & identifiers(fallback)]

    @property
    def other_branch(self) -> ast.If | None:
        """An `if` around nothing but imports from Apex whose other branch binds the name without Apex."""
        parent = self.module.parents[self.stmt]
        if not isinstance(parent, ast.If):
            return None
        mine, other = (
            (parent.body, parent.orelse) if any(s is self.stmt for s in parent.body) else (parent.orelse, parent.body)
        )
        if all(is_idle(s) for s in mine) and any(self.name in bound_names(s) for s in other):
            return parent
        return None

    @property
    def stand_in(self) -> ast.stmt | None:
        """What binds the name where Apex is missing, or is not asked for."""
        chosen = self.other_branch
        other = [] if chosen is None else chosen.orelse if self.stmt in chosen.body else chosen.body
        return self.fallback or next((s for s in other if self.name in bound_names(s)), None)


def speaks_of_apex(name: str) -> bool:
    return APEX_WORDS.search(name) is not None


def bindings(module: Module, handled: Callable[[str], bool]) -> Iterator[Binding]:
    """The names that import statements bind to parts of Apex that have rules."""
    found = [n for n in module.of(ast.ImportFrom) if not n.level and within_apex(n.module)]
    outer_first = sorted(found, key=lambda n: (len(list(module.ancestors(n))), n.lineno, n.col_offset))
    for node in outer_first:
        for alias in node.names:
            target = public_name(f"{node.module}.{alias.name}")
            if handled(target):
                yield Binding(module, node, alias, module.scope_of(node), target)


def stands_for(module: Module, stmt: ast.stmt, name: str) -> str | None:
    """What a fallback binds a name to, by its dotted name; None for a definition or a plain value."""
    if isinstance(stmt, ast.ImportFrom):
        alias = next(a for a in stmt.names if (a.asname or a.name) == name)
        return f"{'.' * stmt.level}{stmt.module or ''}.{alias.name}"
    if isinstance(stmt, ast.Assign):
        return module.qualify(stmt.value)
    return None


def wraps(module: Module, stmt: ast.stmt, native: str) -> bool:
    """Whether a statement binds its name to a function of the program's own that makes a native class:
    `DDP = lambda model: DistributedDataParallel(model, device_ids=[0])`."""
    if isinstance(stmt, ast.Assign):
        value = stmt.value
        partial = isinstance(value, ast.Call) and module.qualify(value.func) == "functools.partial"
        if not partial and not isinstance(value, ast.Lambda):
            return False
    elif not isinstance(stmt, ast.FunctionDef):
        return False
    return any(isinstance(n, (ast.Name, ast.Attribute)) and module.qualify(n) == native for n in walk(stmt))


class ImportEdits:
    """Import lines to write, and names of Apex imports to take out, of one module; carried out together at the end."""

    def __init__(self, module: Module, edits: Edits) -> None:
        self.module = module
        self.edits = edits
        self.lines: dict[ast.ImportFrom, list[Code]] = {}
        self.removed: dict[ast.ImportFrom, list[ast.alias]] = {}

    def add(self, binding: Binding, line: str) -> None:
        """Write an import where the binding's own stands; above the guard if it stands in one."""
        if binding.guard is not None:
            _add(self.edits.before.setdefault(binding.guard, []), line)
        else:
            _add(self.lines.setdefault(binding.stmt, []), line)

    def remove(self, binding: Binding) -> None:
        self.removed.setdefault(binding.stmt, []).append(binding.alias)

    def carry_out(self, live: Callable[[ast.ImportFrom, ast.alias], bool]) -> None:
        """`live` tells whether something still uses a name that was not taken out."""
        for stmt in {**self.lines, **self.removed}:
            gone = self.removed.get(stmt, [])
            kept = [a for a in stmt.names if a not in gone and live(stmt, a)]
            codes = [*self.lines.get(stmt, [])]
            if kept:
                codes.append(ast.unparse(ast.ImportFrom(stmt.module, kept, stmt.level)))
            if codes:
                self.edits.replace(stmt, *codes)
            else:
                self.edits.delete(stmt)


def _add(codes: list[Code], line: str) -> None:
    """Add an import, to one from the same module if there is one."""
    home, _, names = line.partition(" import ")
    for index, code in enumerate(codes):
        if isinstance(code, str) and code.startswith(home + " import ") and "(" not in code + line:
            kept = code.partition(" import ")[2].split(", ")
            merged = sorted({*kept, *names.split(", ")}, key=str.lower)
            codes[index] = f"{home} import {', '.join(merged)}"
            return
    codes.append(line)


def import_line(native: str, name: str) -> str:
    """`from torch.nn import LayerNorm as BertLayerNorm`."""
    home, _, last = native.rpartition(".")
    return f"from {home} import {last}" + (f" as {name}" if name != last else "")


def binding_line(binding: Binding, native: str) -> str:
    """What gives a name its counterpart: an import, but for one that stands below definitions where the file knows that by
    another name: `BertLayerNorm = nn.LayerNorm`."""
    known = native_name(binding.module, native, binding.scope, binding.stmt.lineno)
    body = binding.module.tree.body
    own = binding.guard or binding.stmt
    amid = own in body and any(isinstance(s, (*FUNCTION_NODES, ast.ClassDef)) for s in body[: body.index(own)])
    return (
        f"{binding.name} = {known}" if amid and known not in (None, binding.name) else import_line(native, binding.name)
    )


def _imports_or_marks(stmt: ast.stmt) -> bool:
    if isinstance(stmt, (ast.Import, ast.ImportFrom)) or is_idle(stmt):
        return True
    return isinstance(stmt, ast.Assign) and not any(isinstance(n, ast.Call) for n in walk(stmt.value))


def bound_names(stmt: ast.stmt) -> set[str]:
    """The names that a statement binds, of those a fallback for a missing import can be."""
    if isinstance(stmt, (*FUNCTION_NODES, ast.ClassDef)):
        return {stmt.name}
    if isinstance(stmt, (ast.Import, ast.ImportFrom)):
        return {a.asname or a.name.split(".")[0] for a in stmt.names}
    if isinstance(stmt, ast.Assign):
        return {t.id for t in stmt.targets if isinstance(t, ast.Name)}
    return set()
