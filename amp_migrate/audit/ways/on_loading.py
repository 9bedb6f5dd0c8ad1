"""Which statements run when a file is loaded, and which other files that loads: the packages above what an import names, those
above the file itself, what `__all__` lists of a package, modules that are imported by a call with their name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.near import IMPORTERS, runs_itself
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.ways.installed import catches_import, ends


def surely_run(module: Module) -> Iterator[ast.stmt]:
    """The statements that run whenever a file is loaded, and end it where they fail: bodies of classes and of `with`, of a `try`
    whose handlers give the error on."""
    yield from _surely(module.tree.body)


def _surely(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for stmt in body:
        yield stmt
        if isinstance(stmt, (ast.ClassDef, ast.With)):
            yield from _surely(stmt.body)
        elif isinstance(stmt, ast.Try):
            if all(ends(h.body) for h in stmt.handlers if catches_import(h)):
                yield from _surely([*stmt.body, *stmt.orelse])
            yield from _surely(stmt.finalbody)
        elif isinstance(stmt, ast.If) and _always(stmt.test):
            yield from _surely(stmt.body)


def loads(program: Program, module: Module) -> Iterator[tuple[ast.stmt, Module]]:
    """The files that are loaded with a file, each with the statement of it that comes to them."""
    for stmt in surely_run(module):
        for name in _named(program, module, stmt):
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                home = program.module_named(".".join(parts[:end]), module)
                if home is not None and home is not module:
                    yield stmt, home
    relative = any(s.level for s in module.tree.body if isinstance(s, ast.ImportFrom))
    if module.tree.body and (relative or not runs_itself(module)):  # a script is no part of the package it lies in
        for folder in PurePosixPath(module.path).parents:
            home = program.modules.get(str(folder / "__init__.py"))
            if home is None:
                break
            if home is not module:
                yield module.tree.body[0], home


def _named(program: Program, module: Module, stmt: ast.stmt) -> Iterator[str]:
    """The full names of what a statement imports."""
    if isinstance(stmt, ast.Import):
        yield from (a.name for a in stmt.names)
    elif isinstance(stmt, ast.ImportFrom):
        base = program._base(module, stmt)
        yield base
        for alias in stmt.names:
            home = program.module_named(base, module) if alias.name == "*" else None
            yield from (f"{base}.{n}" for n in (_listed(home) if home is not None else [alias.name]))
    elif isinstance(stmt, (ast.Assign, ast.AnnAssign, ast.Expr)):
        for call in syntax.every(stmt, ast.Call):
            name = call.args[0] if call.args and syntax.last(call.func) in IMPORTERS else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and not name.value.startswith("."):
                yield name.value


def _listed(package: Module) -> Iterator[str]:
    for node in package.top.bindings.get("__all__", ()):
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) else None
        for item in value.elts if isinstance(value, (ast.List, ast.Tuple)) else ():
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                yield item.value


def _always(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)
