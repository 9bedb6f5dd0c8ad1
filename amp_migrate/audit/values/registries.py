"""What a container of functions and classes holds: a dictionary, or an object that decorators put them into.

`MODELS = {"a": A}`, `MODELS["a"] = A`, `@MODELS.register("a")`, `@register("a")` where that function of the container's file
stores what it is given in it. What is held under which key is not asked: a lookup may give any.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from amp_migrate.audit.kept import kept_meanwhile
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.targets import put_later

if TYPE_CHECKING:
    from amp_migrate.audit.program.program import Program

FILLING = ("register", "add")  # how the methods are called that put something in
MOST = 40  # what is held; of more, a lookup says nothing


class Place(NamedTuple):
    """A name of a file or a function, which holds the container."""

    scope: Scope
    name: str

    @property
    def module(self) -> Module:
        return self.scope.module


class Registries:
    """The containers of one state of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def held(self, scope: Scope, container: ast.expr) -> list[Function | Class]:
        """What a lookup in a container may give; empty where it is none, or holds too much."""
        if isinstance(container, ast.Attribute) and container.attr == "__dict__":
            return self._of_module(scope, container.value)
        if (
            isinstance(container, ast.Call)
            and isinstance(container.func, ast.Name)
            and not scope.binder(container.func.id)
        ):
            if container.func.id == "vars" and container.args:
                return self._of_module(scope, container.args[0])
            return self._classes_of(scope.module) if container.func.id == "globals" else []
        if isinstance(container, ast.Dict):  # which is written where it is looked into
            written = [d for v in container.values for d in self.program.definitions(scope, v, guess=False)]
            return list(dict.fromkeys(written)) if len(written) <= MOST else []
        place = self._place(scope, container)
        return self._at(place) if place is not None else []

    @kept_meanwhile(list)
    def _at(self, place: Place) -> list[Function | Class]:
        found = list(dict.fromkeys(self._found(place)))
        return found if len(found) <= MOST else []

    def _of_module(self, scope: Scope, expr: ast.expr) -> list[Function | Class]:
        """What `losses.__dict__[name]` may give, as far as it is made for a program's choice: the classes of the file."""
        dotted = self.program.imported(scope, expr)
        home = self.program.module_named(dotted, scope.module) if dotted is not None else None
        return self._classes_of(home) if home is not None else []

    def _classes_of(self, home: Module) -> list[Function | Class]:
        found = [home.class_of[n] for n in home.tree.body if n in home.class_of]
        return [*found] if len(found) <= MOST else []

    def _place(self, scope: Scope, expr: ast.expr) -> Place | None:
        if isinstance(expr, ast.Name):
            binder = scope.binder(expr.id)
            if binder is not None and not binder.is_class:
                if any(isinstance(n, (ast.Assign, ast.AnnAssign)) for n in binder.bindings[expr.id]):
                    return Place(binder, expr.id)
        dotted = self.program.imported(scope, expr)
        return self._exported(scope.module, dotted) if dotted is not None else None

    def _exported(self, module: Module, dotted: str, depth: int = 0) -> Place | None:
        head, _, last = dotted.rpartition(".")
        home = self.program.module_named(head, module) if head else None
        if home is None or depth > 3:
            return None
        for node in home.top.bindings.get(last, ()):
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                return Place(home.top, last)
            further = self.program._imported(home, last, node)
            if further is not None and further != dotted:
                return self._exported(home, further, depth + 1)
        return None

    def _found(self, place: Place) -> Iterator[Function | Class]:
        define = self.program.definitions
        for node in place.scope.bindings[place.name]:
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            literal = value if isinstance(value, ast.Dict) else next(iter(getattr(value, "args", ())), None)
            if isinstance(literal, ast.Dict):
                for item in literal.values:
                    yield from define(place.scope, item, guess=False)
        local = place.scope is not place.module.top
        for module in [place.module] if local else self.program.having(place.name):
            for put in put_later(module).get(place.name, ()):
                if self._place(module.scope_of(put.holder), put.holder) == place:
                    yield from define(module.scope_of(put.value), put.value, guess=False)
            for call in (c for n, calls in module.calls_named.items() if n.startswith(FILLING) for c in calls):
                scope = module.scope_of(call)
                if isinstance(call.func, ast.Attribute) and self._place(scope, call.func.value) == place:
                    for given in syntax.given(call):
                        if isinstance(given, (ast.Name, ast.Attribute)):
                            yield from define(scope, given, guess=False)
            yield from self._decorated(module, place)
        for function in self._fillers(place):
            for module in self.program.having(function.name):
                for definition, scope, decorator in _decorators(module):
                    if function in define(scope, decorator, guess=False):
                        yield definition

    def _decorated(self, module: Module, place: Place) -> Iterator[Function | Class]:
        """What stands under `@PLACE.register(...)` or `@PLACE(...)`."""
        for definition, scope, decorator in _decorators(module):
            by_method = isinstance(decorator, ast.Attribute) and decorator.attr.startswith(FILLING)
            holder = decorator.value if by_method and isinstance(decorator, ast.Attribute) else decorator
            if self._place(scope, holder) == place:
                yield definition

    def _fillers(self, place: Place) -> list[Function]:
        """Functions of the container's file that store a parameter in it, theirs or that of a function within."""
        found = []
        for put in put_later(place.module).get(place.name, ()):
            if isinstance(put.value, ast.Name):
                scope = place.module.scope_of(put.value)
                binder = scope.binder(put.value.id)
                if binder is not None and any(isinstance(n, ast.arg) for n in binder.bindings[put.value.id]):
                    outer = scope
                    while outer.parent is not None and outer.parent is not place.module.top:
                        outer = outer.parent
                    if outer is not place.module.top and not outer.is_class:
                        found.append(self.program.function_of(place.module, outer.node))
        return found


def _decorators(module: Module) -> Iterator[tuple[Function | Class, Scope, ast.expr]]:
    """The decorators of a file's functions and classes, without what they are called with."""
    definitions: list[Function | Class] = [*module.functions, *module.classes]
    for definition in definitions:
        for decorator in definition.node.decorator_list:
            func = decorator.func if isinstance(decorator, ast.Call) else decorator
            yield definition, definition.scope.parent or module.top, func
