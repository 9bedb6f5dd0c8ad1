"""Which methods run on one object: those that its class has, and none that only another class below the same base has.

A path that comes to `self.step()` of a base class goes on in one of the classes below it, and stays with that class for as
long as it is the same `self`: an optimizer that a base class makes is another one for each of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Scope
from amp_migrate.audit.stepping.bodies import Bodies, Owner
from amp_migrate.audit.stepping.objects import Bound, Env, Ref

CLASS = "__class__"  # the field by which an object's class is known
Entries = tuple[tuple[Bound, Ref], ...]


class Kinds:
    """Answers for one program."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies = bodies
        self.program = bodies.program

    def of_self(self, owner: Owner, entries: Entries) -> list[Entries]:
        """What is known of the parameters of a method, once for each class that its object may be of."""
        if not isinstance(owner, Function) or owner.owner is None or not owner.bound or not owner.parameters:
            return [entries]
        held = owner.scope, f"{owner.parameters[0].arg}.{CLASS}"
        if any(b == held for b, _ in entries):
            return [entries]
        classes = self._apart(owner.owner)
        return [in_order((*entries, (held, kind(cls)))) for cls in classes] if len(classes) > 1 else [entries]

    def run_by(self, scope: Scope, env: Env, call: ast.Call, callees: tuple[Function, ...]) -> tuple[Function, ...]:
        """Of the methods that a call of one of `self` may run, those that the object's class has."""
        func = call.func
        if len(callees) < 2 or not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name):
            return callees
        if (owner := self.program.is_self(scope, func.value)) is None:
            return callees
        binder = scope.binder(func.value.id)
        held = env.get((binder, f"{func.value.id}.{CLASS}")) if binder is not None else None
        if held is None:
            return callees
        classes = (c for c in (owner, *self.program.family(owner)) if kind(c) == held)
        own = {f for c in classes for f in self.program._method(c, func.attr)}
        return tuple(f for f in callees if f in own) or callees

    @kept
    def _apart(self, cls: Class) -> list[Class]:
        """A class and those below it, one of all that run the same methods with a part in the step."""
        below = self.program.below(cls)
        names = sorted(
            {n for c in (cls, *below) for n, found in c.methods.items() if any(f in self.bodies for f in found)}
        )
        apart: dict[tuple[Function, ...], Class] = {}
        for each in (cls, *below):
            apart.setdefault(tuple(f for n in names for f in self.program._method(each, n)), each)
        return list(apart.values())


def in_order(entries: Iterable[tuple[Bound, Ref]]) -> Entries:
    return tuple(sorted(entries, key=lambda e: (e[0][0].module.path, e[0][0].qualname, e[0][1])))


def kind(cls: Class) -> Ref:
    """A class as what the field of its objects stands for."""
    return Ref(f"{cls.module.path}:{cls.qualname}", None)


def own_super(scope: Scope, receiver: ast.expr) -> ast.Name | None:
    """`self`, where a method is called by `super()`: it runs on the same object."""
    if not isinstance(receiver, ast.Call) or syntax.text(receiver.func) != "super":
        return None
    at: Scope | None = scope
    while at is not None and (at.function is None or at.function.owner is None):
        at = at.parent
    if at is None or at.function is None or not at.function.parameters:
        return None
    return ast.copy_location(ast.Name(at.function.parameters[0].arg, ast.Load()), receiver)
