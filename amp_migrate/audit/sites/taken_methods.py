"""Methods that run a model and are taken as values, `decode = model.decode`: what calls them runs that model."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cached_property

from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.sites.setups import Identity, identities
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.values.values import Values


class TakenMethods:
    """Those of one state of a program; `running`: how methods that run a model are called."""

    def __init__(self, values: Values, modules: Sequence[Module], running: Callable[[], set[str]]) -> None:
        self.values = values
        self.modules = modules
        self._running = running

    @property
    def names(self) -> set[str]:
        """How they are called, and what is known by them."""
        return set(self._found)

    def models(self, found: frozenset[Identity], scope: Scope, called: ast.expr) -> frozenset[Identity]:
        """What a variable that is called runs, where it may hold such methods: their models, and what else is `found` in it."""
        bound = frozenset[Identity]().union(
            *(identities(self.values, *holder) for holder in self.holders(scope, called))
        )
        partials = (i for i in found if bound and isinstance(i[0], ast.Call) and last_name(i[0].func) == "partial")
        return found.difference(partials) | bound

    def holders(self, scope: Scope, called: ast.expr) -> list[tuple[Scope, ast.expr]]:
        """What those methods are taken of, each with the scope in which."""
        methods: dict[ast.Attribute, None] = {}
        for origin in self.values.instances.called(scope, called) if self._found else ():
            if origin.kind == "function" and not origin.path:
                methods |= dict.fromkeys(self._found.get(getattr(origin.node, "name", ""), ()))
            elif isinstance(origin.node, ast.Attribute) and origin.node in self._found.get(origin.node.attr, ()):
                methods[origin.node] = None
        return [(self._found[m.attr][m].scope_of(m), m.value) for m in methods]

    @cached_property
    def _found(self) -> dict[str, dict[ast.Attribute, Module]]:
        """Where they are taken, by their names."""
        found: dict[str, dict[ast.Attribute, Module]] = {}
        for module in self.modules:
            for name in module.words & self._running():
                for node in module.loads.get(name, ()):
                    if not isinstance(node, ast.Attribute):
                        continue
                    parent = module.parents.get(node)
                    if not (isinstance(parent, ast.Call) and parent.func is node) and not isinstance(
                        parent, ast.Attribute
                    ):
                        found.setdefault(node.attr, {})[node] = module
        return found
