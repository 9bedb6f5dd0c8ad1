"""Which definitions of a program a run may come to, by their names: what the files that were set up for Apex, and those that
import them, mention, and what these definitions mention in turn. A vendored library brings many networks that nothing runs.

Errs towards more: a name is one definition wherever it stands, what is decorated may be found in a registry, and where code
looks for names at run time everything may be meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.by_name import IMPORTERS
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.program.near import Near
from amp_migrate.audit.program.program import Program


class Mentioned:
    """Answers for one state of a program; `starts`: the files that run mixed precision."""

    def __init__(self, program: Program, starts: Iterable[Module]) -> None:
        self.program = program
        self.starts = sorted(Near(program).leading_to(starts), key=lambda m: m.path)
        self._names: frozenset[str] | None = None

    def cls(self, cls: Class) -> bool:
        """Whether a run may make an object of a class."""
        if self._names is None:
            self._names = self._find()
        outermost = cls.qualname.split(".")[0]
        return "*" in self._names or outermost in self._names

    def _find(self) -> frozenset[str]:
        """The names that are mentioned; `*` where any may be."""
        held: dict[str, list[tuple[Module, ast.stmt]]] = {}
        todo: list[tuple[Module, ast.stmt]] = []
        for module in self.program.modules.values():
            for stmt in module.tree.body:
                for name in _defined(stmt):
                    held.setdefault(name, []).append((module, stmt))
                if isinstance(stmt, (ast.ClassDef, ast.FunctionDef)) and stmt.decorator_list:
                    todo.append((module, stmt))
        todo += [(m, s) for m in self.starts for s in m.tree.body]
        loading = self.program.loaded.loading
        found: set[str] = set()
        seen: set[int] = set()
        while todo:
            module, part = todo.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            if isinstance(part, (ast.ClassDef, ast.FunctionDef)):
                found.add(part.name)
            for name in _mentions(part, module in loading):
                if name == "*":
                    return frozenset("*")
                if name not in found:
                    found.add(name)
                    todo += held.get(name, ())
        return frozenset(found)


def _defined(stmt: ast.stmt) -> Iterator[str]:
    if isinstance(stmt, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield stmt.name
    for target in stmt.targets if isinstance(stmt, ast.Assign) else ():
        if isinstance(target, ast.Name):
            yield target.id


def _mentions(part: ast.AST, loads: bool) -> Iterator[str]:
    """The names that code loads; `*` where it finds something by a name that is put together, also in files that it `loads`."""
    for node in syntax.walk(part):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Call) and _looks_up(node, loads):
            yield "*"


def _looks_up(call: ast.Call, loads: bool) -> bool:
    """`getattr(nets, args.model)(...)`, `globals()[name]`, `import_module("nets." + name)`."""
    func = call.func
    if isinstance(func, ast.Call):
        return getattr(func.func, "id", "") == "getattr" and not isinstance(func.args[-1], ast.Constant)
    if isinstance(func, ast.Name) and func.id in ("globals", "eval", "exec"):
        return not call.args or not isinstance(call.args[0], ast.Constant)
    name = func.id if isinstance(func, ast.Name) else getattr(func, "attr", "")
    return loads and name in IMPORTERS and bool(call.args) and not isinstance(call.args[0], ast.Constant)
