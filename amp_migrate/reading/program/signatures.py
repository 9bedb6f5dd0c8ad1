"""Functions that take one more parameter: which of them must take it together, and how it can be passed to all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import Imports
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import reached


def all_calls(project: Project, function: Function) -> list[tuple[Module, ast.Call]]:
    """Its calls; of those through a variable that holds `partial(function, ...)`, the call of `partial`."""
    seen: dict[ast.Call, Module] = {}
    for module, call in (*project.calls.get(function, ()), *project.bound.get(function, ())):
        seen[project.through.get(call, call)] = module
    return [(m, c) for c, m in seen.items()]


def alike(project: Project, function: Function) -> list[Function]:
    """A function and all that its calls may run instead: a method that overrides it, a copy under another condition. What
    is passed to one is passed to all. With methods goes what declares them: a stub of a base."""

    def further(current: Function) -> Iterator[Function]:
        for module, call in all_calls(project, current):
            yield from project.resolved.get(call) or project.partial_of(module, call)

    found = [*reached([function], further)]
    declared = [b.methods[f.name] for f in found if f.cls is not None for b in f.cls.ancestry() if f.name in b.methods]
    return list(dict.fromkeys([*found, *(f for f in declared if _only_declares(f))]))


def _only_declares(function: Function) -> bool:
    """Whether a function has no body but a docstring, `pass`, or an error that it is to be overridden."""
    return all(
        isinstance(s, (ast.Pass, ast.Raise)) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in function.node.body
    )


def is_public(project: Project, function: Function) -> bool:
    """Whether code out of sight may call a function: one of a module that is imported, under a name without underscore."""
    inner = function.scope.parent is not None and function.scope.parent.is_function
    script = function.module in project.once(Imports).scripts
    return not inner and not script and not (function.name.startswith("_") and function.name != "__init__")
