"""What a factory makes of what it is asked for, `registry.get(name)(**cfg)`: each call that asks it makes a thing of its own."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.origins import Origin, Sources

FACTORIES = 6  # that hand a wish on to each other


class Asked:
    """The factories of a program, with the calls in them that make what their callers name."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.program: Program = sources.program

    def from_call(self, functions: list[Function], own: Origin) -> Callable[[Origin], Origin]:
        """What the call of an origin gets for what a factory gives back: itself, where the factory made what it was asked."""
        made = {node: f for f in functions for node in self.making(f)}
        if not made:
            return lambda origin: origin

        def told(origin: Origin) -> Origin:
            of_call = origin.kind == "call" and origin.path == own.path and origin.node in made
            return own if of_call and origin.node not in self.sources.of_held else origin

        return told

    def inside(self, origin: Origin, depth: int = FACTORIES) -> Iterator[tuple[Module, ast.Call]]:
        """A call that gives what a factory made, and the calls in that which made it."""
        if not isinstance(origin.node, ast.Call):
            return
        yield origin.module, origin.node
        scope = origin.module.scope_of(origin.node)
        for found in self.program.definitions(scope, origin.node.func, guess=False) if depth else ():
            for node in self.making(found) if isinstance(found, Function) else ():
                yield from self.inside(Origin(found.module, node, "call"), depth - 1)

    @kept
    def making(self, function: Function, depth: int = FACTORIES) -> frozenset[ast.AST]:
        """The calls in a function that make what its parameters choose, itself or by a factory that it hands them."""
        calls = (n for n in syntax.own_nodes(function.node) if depth and isinstance(n, ast.Call))
        return frozenset(call for call in calls if self._chosen(function, call, depth))

    def _chosen(self, function: Function, call: ast.Call, depth: int) -> bool:
        found = self.program.definitions(function.scope, call.func, guess=False)
        if not found:  # the method of an object out of sight makes what it likes
            return not isinstance(call.func, ast.Attribute) and self._hangs_on(function, call.func)
        if not all(isinstance(d, Function) and not d.class_method and self.making(d, depth - 1) for d in found):
            return False
        return self._hangs_on(function, call)

    def _hangs_on(self, function: Function, expr: ast.AST) -> bool:
        """Whether an expression in a function has to do with one of its parameters, through its variables, too."""
        return bool(_names(expr) & self._chosen_names(function.scope, frozenset(function.parameters[function.bound :])))

    @kept
    def _chosen_names(self, scope: Scope, parameters: frozenset[ast.arg]) -> frozenset[str]:
        found = {p.arg for p in parameters}
        values = {
            name: [n.value for n in nodes if isinstance(n, ast.Assign)]
            for name, nodes in scope.bindings.items()
            if name not in found
        }
        more = True
        while more:
            new = {n for n, given in values.items() if n not in found and any(_names(v) & found for v in given)}
            more = bool(new)
            found |= new
        return frozenset(found)


def _names(expr: ast.AST) -> set[str]:
    return {n.id for n in syntax.walk(expr) if isinstance(n, ast.Name)}
