"""Of which classes an object may be that a program calls, where the class it is made of is a value: `KINDS[name](**given)`.

A class body that keeps classes, by themselves or in a container, has objects made of them: by the class (`self.loss =
self.loss[name]()`), by a base, or by whatever runs it out of sight. What is called by that name of an object may be one of each.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program.module import Class, Function, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.values.origins import Origin, in_order
from amp_migrate.audit.values.same import gathered, is_mapping, is_partial, joined_items

if TYPE_CHECKING:
    from amp_migrate.audit.values.values import Values

Kind = Class | str  # of the program, or the full name of one of torch's
OPEN = ("torch", "object", "abc", "typing")  # bases that make nothing of what a class body keeps


class Instances:
    """The classes of objects in one state of a program."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.program = values.program

    @kept
    def of(self, scope: Scope, expr: ast.expr) -> list[Kind]:
        """The classes that what an expression gives may be an object of, as far as these are seen."""
        values, origins = self.values.origins(scope, expr), self.called(scope, expr)
        found = [*self._made_of(values)] if not self._container_in(values) else self._made(origins)
        attribute = _attribute(scope, expr)
        owner = self.program.is_self(scope, attribute.value) if attribute is not None else None
        bases = self.program.external_bases(owner) if owner is not None else []
        if self._container_in(values) or any(base.partition(".")[0] not in OPEN for base in bases):
            found += self._classes(origins)
        return list(dict.fromkeys(found))

    @kept
    def called(self, scope: Scope, expr: ast.expr) -> list[Origin]:
        """What is run where an expression is called: of a container, which nothing calls, what it holds; of a `partial` or
        `staticmethod` what that runs."""
        values = self.values.origins(scope, expr)
        if not self._container_in(values):
            return self._run_by(values)
        found: list[Origin] = []
        for origin in in_order(values):
            if _holds_others(self.program, origin):
                found += self._bound(in_order(self.values.origins(scope, expr, (None,))))
            else:
                found += self._bound([origin])
        return list(dict.fromkeys(found))

    @kept
    def _container_in(self, values: frozenset[Origin]) -> bool:
        return any(_holds_others(self.program, origin) for origin in values)

    @kept
    def _run_by(self, values: frozenset[Origin]) -> list[Origin]:
        """What is run where one of these is called, none of which is a container: many places may ask it of the same."""
        return list(dict.fromkeys(self._bound(in_order(values))))

    @kept
    def _made_of(self, values: frozenset[Origin]) -> list[Kind]:
        return self._made(self._run_by(values))

    def _made(self, origins: Iterable[Origin]) -> list[Kind]:
        """The classes of what some calls make."""
        made = [(o.module.scope_of(o.node), o.node) for o in origins if not o.path]
        return [kind for there, node in made if isinstance(node, ast.Call) for kind in self.made(there, node)]

    def _bound(self, origins: Iterable[Origin]) -> Iterator[Origin]:
        for origin in origins:
            node, there = origin.node, origin.module.scope_of(origin.node)
            if isinstance(node, ast.Call) and node.args and not origin.path and self._hands_on(there, node):
                yield from in_order(self.values.origins(there, node.args[0]))
            else:
                yield origin

    def _hands_on(self, there: Scope, call: ast.Call) -> bool:
        static = isinstance(call.func, ast.Name) and call.func.id == "staticmethod"
        return static or is_partial(call, self.program, there)

    @cached_property
    def named(self) -> frozenset[str]:
        """The names under which class bodies keep more than numbers and texts."""
        bodies = (
            (name, node) for cls in self.program.classes for name, at in cls.scope.bindings.items() for node in at
        )
        given = ((name, node.value) for name, node in bodies if isinstance(node, (ast.Assign, ast.AnnAssign)))
        return frozenset(name for name, value in given if value is not None and not isinstance(value, ast.Constant))

    @kept
    def made(self, there: Scope, call: ast.Call) -> list[Kind]:
        """The classes that a call may make an object of: of the class itself, or by a method of it."""
        by_method = self._by_method(there, call.func) if isinstance(call.func, ast.Attribute) else []
        return by_method or self._named(there, call.func)

    def _by_method(self, there: Scope, func: ast.Attribute) -> list[Kind]:
        """The classes whose method makes an object: `Net.from_pretrained(path)`, `TABLE[name][1].load(path)`."""
        defined = self.program.definitions(there, func, guess=False)
        if func.attr.startswith("from_") or any(isinstance(d, Function) and d.class_method for d in defined):
            return self._named(there, func.value)
        kinds = self._named(there, func.value) if not defined else []
        methods = ((k, self.program._method(k, func.attr)) for k in kinds if isinstance(k, Class))
        return [k for k, found in methods if any(f.class_method for f in found)]

    @kept
    def _named(self, there: Scope, expr: ast.expr) -> list[Kind]:
        """The classes that an expression may be."""
        defined = self.program.definitions(there, expr, guess=False)
        classes: list[Kind] = [d for d in defined if isinstance(d, Class)]
        if classes:
            return classes
        if (name := self.program.dotted(there, expr)) is not None:
            return [name] if _of_torch(name) else []
        return self._classes(self.called(there, expr))

    def _classes(self, origins: Iterable[Origin]) -> list[Kind]:
        """The classes among some values."""
        found: list[Kind] = []
        for origin in origins:
            node, there = origin.node, origin.module.scope_of(origin.node)
            if isinstance(node, ast.ClassDef) and not origin.path:
                found.append(origin.module.class_of[node])
            elif isinstance(node, (ast.Name, ast.Attribute)) and _of_torch(name := self.program.dotted(there, node)):
                found.append(name or "")
        return found


def _attribute(scope: Scope, expr: ast.expr) -> ast.Attribute | None:
    """The attribute that is called, or that holds what is: `self.losses[0]`, `for loss in self.losses`."""
    if isinstance(expr, ast.Name) and (home := scope.binder(expr.id)) is not None:
        turns = [node.iter for node in home.bindings[expr.id] if isinstance(node, (ast.For, ast.comprehension))]
        expr = turns[0] if len(turns) == len(home.bindings[expr.id]) else expr
        if (
            isinstance(expr, ast.Call)
            and isinstance(expr.func, ast.Attribute)
            and expr.func.attr in ("values", "items")
        ):
            expr = expr.func.value
    while isinstance(expr, ast.Subscript):
        expr = expr.value
    return expr if isinstance(expr, ast.Attribute) else None


def _holds_others(program: Program, origin: Origin) -> bool:
    """Whether a value is a container, which nothing calls: what it holds may be."""
    node = origin.node
    if isinstance(node, ast.Call):
        scope = origin.module.scope_of(node)
        made = gathered(node, (None,)) is not None or is_mapping(node, program.dotted(scope, node.func), scope)
    elif isinstance(node, ast.BinOp):
        made = bool(joined_items(node, (None,)))
    else:
        made = isinstance(node, (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.DictComp, ast.ListComp))
    return made and not origin.path


def _of_torch(name: str | None) -> bool:
    """Whether a full name is that of a class of torch's: `torch.nn.BCELoss`."""
    return (name or "").startswith("torch.nn.") and (name or "").rpartition(".")[2][:1].isupper()
