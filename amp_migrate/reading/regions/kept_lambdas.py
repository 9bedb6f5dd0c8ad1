"""Lambdas that are kept, `score = lambda x: net(x).max()`: what stands in one runs where that is called, in no region here."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project

BINDING = ("functools.partial", "functools.partialmethod", "property", "staticmethod", "classmethod")
STORING = ("append", "add", "insert", "setdefault", "extend")


def in_kept_lambda(project: Project, module: Module, node: ast.AST) -> bool:
    """Whether a node stands in one; not in what a call is handed, to run it there."""
    around = next((a for a in module.around(node) if isinstance(a, ast.Lambda)), None)
    if around is None:
        return False
    parent = module.parents.get(around)
    call = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    return not isinstance(call, ast.Call) or _keeps(project, module, call, around)


def _keeps(project: Project, module: Module, call: ast.Call, handed: ast.Lambda) -> bool:
    """Whether a call only binds, stores or registers what it is handed."""
    if (module.qualify(call.func) or ast.unparse(call.func)) in BINDING:
        return True
    functions = project.resolved.get(call, ())
    if not functions and isinstance(call.func, ast.Attribute):
        return call.func.attr in STORING or call.func.attr.startswith("register_")
    names = [(f, name) for f in functions for name, value in project.arguments(f, call) if value is handed]
    return bool(names) and all(_stores(f, name) for f, name in names)


def _stores(function: Function, name: str) -> bool:
    """Whether a function does nothing with a parameter but keep it: `self.score = score`."""
    parents = [function.module.parents.get(read) for read in function.scope.reads(name)]
    kept = (
        isinstance(p, ast.Assign) and all(isinstance(t, (ast.Attribute, ast.Subscript)) for t in p.targets)
        for p in parents
    )
    return bool(parents) and all(kept)
