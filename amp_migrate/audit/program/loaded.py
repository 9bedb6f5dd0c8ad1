"""The classes that a program finds by a name that it puts together: `import_module("nets." + name).Net`, `find(args.model)`.

A name that begins with a package means any file of it. Of a name out of sight only a function's own is asked: what it returns
may be a network of any file that no import statement brings.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.near import COMPUTED, IMPORTERS, MOST, loading, near_in, of_any_package, packaged

if TYPE_CHECKING:
    from amp_migrate.audit.program.program import Program


class ByName:
    """The classes of one state of a program that are found by name."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.loading = frozenset(loading(program))

    def classes(self, scope: Scope, expr: ast.expr) -> list[Class]:
        """The classes that a call or an attribute may give; empty where it is no such."""
        if isinstance(expr, ast.Attribute):
            return self._called(self._modules(scope, expr.value), expr.attr)
        if not isinstance(expr, ast.Call):
            return []
        if isinstance(expr.func, ast.Name) and expr.func.id == "getattr" and len(expr.args) > 1:
            home, key = expr.args[:2]
            named = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
            return self._called(self._modules(scope, home) or self._imported(scope, home), named)
        found: list[Class] = []
        for function in self.program.definitions(scope, expr.func, guess=False) if self._finders else ():
            if isinstance(function, Function) and function in self._finders:
                text = syntax.text(function.node)
                modules = packaged(self.program, function.module, text)
                found += self._called(modules or (list(self._alone) if of_any_package(text) else []))
        return found

    @cached_property
    def _finders(self) -> frozenset[Function]:
        """The functions that return what they load."""
        functions = (f for module in self.loading for f in module.functions if COMPUTED.search(syntax.text(f.node)))
        return frozenset(f for f in functions if syntax.own(f.node, ast.Return))

    @cached_property
    def names(self) -> frozenset[str]:
        """How what finds classes is called."""
        asked = (
            (module, call)
            for module in self.program.having("getattr")
            for call in module.calls_named.get("getattr", ())
            if len(call.args) > 1 and not isinstance(call.args[1], ast.Constant)
        )
        found = any(self.classes(module.scope_of(call), call) for module, call in asked)
        return frozenset(f.name for f in self._finders) | ({"getattr"} if found else set())

    def _imported(self, scope: Scope, expr: ast.expr) -> list[Module]:
        dotted = self.program.imported(scope, expr)
        home = self.program.module_named(dotted, scope.module) if dotted is not None else None
        return [home] if home is not None else []

    def _modules(self, scope: Scope, expr: ast.expr) -> list[Module]:
        """The files that an expression may be, where it loads one by a name that begins with a package."""
        if scope.module not in self.loading:
            return []
        if isinstance(expr, ast.Name):
            home = scope.binder(expr.id)
            nodes = home.bindings[expr.id] if home is not None else []
            values = [n.value for n in nodes if isinstance(n, ast.Assign)]
            return [m for v in values if isinstance(v, ast.Call) and home is not None for m in self._modules(home, v)]
        if (
            not isinstance(expr, ast.Call)
            or syntax.text(expr.func).rpartition(".")[2] not in IMPORTERS
            or not expr.args
        ):
            return []
        return packaged(self.program, scope.module, "\n".join(self._texts(scope, expr)))

    def _texts(self, scope: Scope, call: ast.Call) -> Iterator[str]:
        yield syntax.text(call)
        name = call.args[0]
        home = scope.binder(name.id) if isinstance(name, ast.Name) else None
        if home is not None and isinstance(name, ast.Name):
            yield from (syntax.text(n.value) for n in home.bindings[name.id] if isinstance(n, ast.Assign))

    def _called(self, modules: list[Module], name: str | None = None) -> list[Class]:
        """The classes of some files that have a name; without one, the networks."""
        found = [m.class_of[n] for m in modules for n in m.tree.body if n in m.class_of]
        found = [c for c in found if (c.name == name if name is not None else self.program.is_network(c))]
        return found if len(found) <= MOST else []

    @cached_property
    def _alone(self) -> list[Module]:
        """The files of classes for torch that no import statement names, and that may be loaded by a name out of sight."""
        return near_in(self.program).alone
