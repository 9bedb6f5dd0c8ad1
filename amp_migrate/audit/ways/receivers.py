"""Of which class the object is whose methods a way comes by: one object has one, from the call that names it on.

`trainer.train()` of a base calls `self.step()`: of a `Plain` that is `Plain.step`, never that of a class beside it.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.values.values import Values


class Receiver(NamedTuple):
    """The object on which a call runs a method: its class is one of these, and whether it is the caller's own."""

    classes: frozenset[Class]
    own: bool


class Receivers:
    """Answers for one state of a program."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.program = values.program

    @kept
    def having(self, function: Function) -> frozenset[Class] | None:
        """The classes whose objects a method may be run on; None where it is none of an object's."""
        owner = function.owner
        return frozenset((owner, *self.program.below(owner))) if owner is not None and function.bound else None

    @kept
    def of(self, module: Module, call: ast.AST, function: Function, classes: frozenset[Class]) -> Receiver:
        """The object on which a call runs a method, which is of one of these classes by what comes later."""
        func = call.func if isinstance(call, ast.Call) else None
        scope = module.scope_of(call)
        if not isinstance(func, ast.Attribute):
            made = self._classes_named(scope, func) if func is not None and function.name == "__init__" else []
            built = frozenset(c for c in made if function in self.program.constructors(c))
            return Receiver(classes & built if built else classes, False)
        chosen = frozenset(c for c in classes if function in self.program._method(c, func.attr))
        # `self.head(x)`: what an object keeps is called, and no method of it.
        if not chosen and func.attr != function.name:
            held = self.made(scope, func)
            return Receiver(classes & held if held is not None else classes, False)
        if isinstance(func.value, ast.Call) and isinstance(func.value.func, ast.Name) and func.value.func.id == "super":
            around = self.program.class_around(scope)
            return Receiver(self._below(classes, around) if around is not None else classes, around is not None)
        if (own := self.program.is_self(scope, func.value)) is not None:
            return Receiver(self._below(chosen, own), True)
        if self._classes_named(scope, func.value):  # `Base.step(self, x)`
            return Receiver(classes, False)
        held = self.made(scope, func.value)
        return Receiver(chosen & held if held is not None else classes, False)

    def _below(self, classes: frozenset[Class], cls: Class) -> frozenset[Class]:
        return frozenset(c for c in classes if cls in self.program.family_up(c))

    def _classes_named(self, scope: Scope, expr: ast.expr) -> list[Class]:
        return [d for d in self.program.definitions(scope, expr, guess=False) if isinstance(d, Class)]

    @kept
    def made(self, scope: Scope, expr: ast.expr) -> frozenset[Class] | None:
        """The classes of what an expression holds, where each is seen to be made; None where something else may be there."""
        found: set[Class] = set()
        for origin in self.values.origins(scope, expr):
            classes = self.values.classes(origin)
            if not classes and origin.kind != "constant":
                return None
            found.update(classes)
        return frozenset(found) or None
