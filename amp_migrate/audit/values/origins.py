"""What makes a value, and what answers to that are made of."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable
from typing import Literal, NamedTuple

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.targets import Path, Put, attributes, put_later, set_by_name
from amp_migrate.audit.values.records import Records

Kind = Literal["call", "constant", "literal", "function", "class", "parameter", "unknown"]


class Origin(NamedTuple):
    """One thing that makes a value. `node` is the call, the literal, the definition, or where the trail is lost.

    For a parameter of a function that code out of sight may call, `node` is the `ast.arg`; `path` says which item of what
    the node makes is meant.
    """

    module: Module
    node: ast.AST
    kind: Kind
    path: Path = ()

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 1)


def in_order(found: Iterable[Origin]) -> list[Origin]:
    """Origins as they stand in the program: what is told of the first of them is told of the same in each run."""
    return sorted(found, key=lambda o: (o.module.path, o.line, getattr(o.node, "col_offset", 0)))


class Stored(NamedTuple):
    """One assignment to an attribute. `value` is None where none is seen, `item` which item of it is meant."""

    scope: Scope
    owner: Class | None  # whose `self` it is an attribute of
    holder: ast.expr
    target: ast.Attribute | None  # None where it is set by its name in quotes
    value: ast.expr | None
    item: Path


class Sources:
    """What answers about one state of a program are made of: what is assigned to fields, given to functions, returned."""

    def __init__(self, program: Program, apart: frozenset[str] = frozenset()) -> None:
        self.program = program
        self.apart = apart
        self._written: dict[tuple[Scope, str], ast.Attribute] = {}
        self.of_held: dict[ast.AST, list[Class]] = {}  # what calls make whose callee is a value that holds classes
        self.records = Records(program)

    @kept
    def stored(self, name: str) -> list[Stored]:
        """Every assignment to an attribute of this name."""
        found: list[Stored] = []
        for module in self.program.having(name):
            for target, value, path in attributes(module).get(name, ()):
                scope = module.scope_of(target)
                owner = self.program.is_self(scope, target.value)
                found.append(Stored(scope, owner, target.value, target, value, path))
            for holder, called, given in set_by_name(module):
                if called == name:
                    scope = module.scope_of(holder)
                    found.append(Stored(scope, self.program.is_self(scope, holder), holder, None, given, ()))
        return found

    @kept
    def fields(self, name: str) -> list[tuple[Module, ast.Attribute, ast.expr | None, Path]]:
        """Every statement that assigns an attribute of this name: the target, the value, if there is one, the item of it."""
        found = [(s.scope.module, s.target, s.value, s.item) for s in self.stored(name)]
        return [(module, at, value, item) for module, at, value, item in found if at is not None]

    def own_fields(self, family: Container[Class], name: str) -> list[tuple[Module, ast.expr | None, Path]]:
        """What methods of some classes assign to an attribute of this name of their objects, if it is seen, and the item of it."""
        stored = (s for s in self.stored(name) if s.target is not None and s.owner in family)
        return [(s.scope.module, s.value, s.item) for s in stored]

    @kept
    def put(self, name: str) -> list[tuple[Scope, ast.Attribute, Put]]:
        """What is put into containers that attributes of this name hold, with the attribute, and the scope of that."""
        puts = (put for module in self.program.having(name) for put in put_later(module).get(name, ()))
        found = [(put.scope, put.holder, put) for put in puts] + self.put_by_others(name)
        return [(scope, holder, put) for scope, holder, put in found if isinstance(holder, ast.Attribute)]

    @kept
    def put_by_others(self, name: str) -> list[tuple[Scope, ast.Name | ast.Attribute, Put]]:
        """What functions put into containers of this name that they are handed: `fill(self.metrics)`."""
        found: list[tuple[Scope, ast.Name | ast.Attribute, Put]] = []
        for module in self.program.having(name):
            for node in module.loads.get(name, ()):
                parent = module.parents.get(node)
                call = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
                if not isinstance(call, ast.Call) or call.func is node:
                    continue
                for function in self.program.callees(module, call):
                    filled = self.program.arguments(function, call, bound=self.bound(function, module, call)) or {}
                    for parameter in (p for p, value in filled.items() if value is node):
                        puts = (p for p in put_later(function.module).get(parameter, ()) if p.scope is function.scope)
                        found += [
                            (module.scope_of(node), node, put) for put in puts if isinstance(put.holder, ast.Name)
                        ]
        return found

    @kept
    def given(self, function: Function) -> list[tuple[Module, ast.Call, dict[str, ast.expr] | None]]:
        """The calls of a function, with what they fill its parameters with (None: `*args` or `**kwargs` hide that)."""
        return [
            (module, call, self.program.arguments(function, call, bound=self.bound(function, module, call)))
            for module, call in self.program.callers(function)
        ]

    def bound(self, function: Function, module: Module, call: ast.Call) -> bool:
        """Whether a call of a method fills `self`: not where it goes through the class, `Trainer.fit(trainer, x)`."""
        if not function.bound:
            return False
        if isinstance(call.func, ast.Attribute) and function.name != "__init__":
            called_on = self.program.definitions(module.scope_of(call), call.func.value, guess=False)
            return not any(isinstance(d, Class) for d in called_on)
        return True

    @kept
    def returns(self, function: Function) -> list[ast.expr]:
        """What a function returns or yields."""
        given = [n.value for n in syntax.own_nodes(function.node) if isinstance(n, (ast.Return, ast.Yield))]
        return [value for value in given if value is not None]

    @kept
    def set_elsewhere(self, module: Module, name: str) -> list[tuple[Scope, ast.expr, Path]]:
        """What other files give a name of a file: `engine.scaler = ...`."""
        found = []
        for at in self.stored(name):
            if at.value is not None and at.owner is None and self.file_named(at.scope, at.holder) is module:
                found.append((at.scope, at.value, at.item))
        return found

    @kept
    def file_named(self, scope: Scope, expr: ast.expr) -> Module | None:
        """The file of the program that an expression stands for: `engine` below `from lib import engine`."""
        dotted = self.program.imported(scope, expr)
        return self.program.module_named(dotted, scope.module) if dotted is not None else None

    def written(self, scope: Scope, expr: ast.Attribute) -> ast.Attribute:
        """The first attribute of a scope that was asked for and is written as this one is, where only names are."""
        base = expr.value
        while isinstance(base, ast.Attribute):
            base = base.value
        return self._written.setdefault((scope, syntax.text(expr)), expr) if isinstance(base, ast.Name) else expr

    @kept
    def stars(self, module: Module) -> list[Module]:
        """The files of the program from which a file imports all names."""
        homes = [self.program.module_named(self.program._base(module, n), module) for n in module.stars]
        return [home for home in homes if home is not None]

    def made(self, origin: Origin) -> list[Class]:
        """The program's classes that an origin makes an object of itself: `Net()`."""
        if not isinstance(origin.node, ast.Call) or origin.path:
            return []
        found = self.program.definitions(origin.module.scope_of(origin.node), origin.node.func, guess=False)
        return [d for d in found or self.of_held.get(origin.node, ()) if isinstance(d, Class)]

    def classes(self, origin: Origin) -> list[Class]:
        """The program's classes whose instance an origin may be."""
        if not isinstance(origin.node, ast.Call) or origin.path:
            return []
        scope, func = origin.module.scope_of(origin.node), origin.node.func
        found = self.program.definitions(scope, func, guess=False)
        if isinstance(func, ast.Attribute) and any(isinstance(d, Function) and d.class_method for d in found):
            found = self.program.definitions(scope, func.value, guess=False)
        return [d for d in found or self.of_held.get(origin.node, ()) if isinstance(d, Class)]
