"""A module, class or function body: what it binds, and whose names it sees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amp_migrate.reading.program.module import Module

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(eq=False)
class Scope:
    """A module, class or function body. Comprehensions and lambdas belong to the scope around them."""

    node: ast.Module | ast.ClassDef | FunctionNode
    parent: Scope | None
    module: Module
    bindings: dict[str, list[ast.AST]] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    params: list[str] = field(default_factory=list)
    outer: set[str] = field(default_factory=set)  # names declared global or nonlocal

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, FUNCTION_NODES)

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_module(self) -> bool:
        return isinstance(self.node, ast.Module)

    @property
    def name(self) -> str:
        return "" if isinstance(self.node, ast.Module) else self.node.name

    @cached_property
    def method(self) -> Scope | None:
        """The function of a class, be it given an object or not, that this one is or is nested in."""
        scope: Scope | None = self
        while scope is not None and scope.is_function:
            if scope.parent is not None and scope.parent.is_class:
                return scope
            scope = scope.parent
        return None

    @cached_property
    def _bound(self) -> Scope | None:
        """The same, where it is given an object: a static method is not, whatever its first parameter."""
        method = self.method
        if method is None or not method.params or isinstance(method.node, (ast.Module, ast.ClassDef)):
            return None
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.node.decorator_list)
        return method if not static else None

    @property
    def owner_class(self) -> Scope | None:
        """The class whose `self` this function sees: its own, or that of the method it is nested in."""
        return self._bound.parent if self._bound is not None else None

    @property
    def self_name(self) -> str | None:
        """The first parameter of the method that this function is or is nested in."""
        return self._bound.params[0] if self._bound is not None else None

    @property
    def outermost(self) -> Scope:
        """The function that this one stands in, or itself; a class's body is what it stands in."""
        scope = self
        while scope.parent is not None and (scope.parent.is_function or scope.is_class):
            scope = scope.parent
        return scope

    def chain(self) -> Iterator[Scope]:
        """This scope and those whose names it sees: classes in between are passed over."""
        yield self
        scope = self.parent
        while scope is not None:
            if not scope.is_class:
                yield scope
            scope = scope.parent

    def lookup(self, name: str) -> Scope | None:
        """The scope that binds a name as seen from here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and name not in scope.outer and (scope is self or not scope.is_class):
                return scope
            scope = scope.parent
        return None

    @property
    def first(self) -> ast.stmt:
        """The first statement below the docstring."""
        first, *more = self.node.body
        told = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        return more[0] if told and more else first

    def reads(self, name: str) -> list[ast.Name]:
        """The reads of a variable that the scope binds, also in the functions inside it."""
        module = self.module
        if name not in module.reads:
            found = module.reads[name] = {}
            for node in module.loads.get(name, ()):
                found.setdefault(module.scope_of(node).lookup(name), []).append(node)
        return module.reads[name].get(self, [])

    @property
    def body(self) -> list[ast.stmt]:
        return self.node.body
