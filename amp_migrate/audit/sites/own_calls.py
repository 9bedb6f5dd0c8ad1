"""Calls by which a network runs itself, or parts of itself, outside of its forward: `self(x)` in an evaluation that is a method of
the network's own, `self.generate(x)` and `self.encoder(x)` in one that trains it.

What methods call that the forward comes by is the network itself: it runs where that does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.sites.forwards import Forward, Forwards
from amp_migrate.audit.sites.lookalikes import PLAIN, RUNNING
from amp_migrate.audit.sites.networks import KEEPERS, RUN_IN_HALF, is_network
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.ways.chains import Chain

TRAINING = frozenset({"backward", "scale_loss"})


class OwnCalls:
    """Those of one state of a program."""

    def __init__(self, program: Program, forwards: Forwards) -> None:
        self.program = program
        self.forwards = forwards

    @kept
    def of(self, module: Module) -> list[Forward]:
        classes = [cls for cls in module.classes if "self" in module.words and self._may_be_network(cls)]
        return [
            forward
            for cls in classes
            for functions in cls.methods.values()
            for function in functions
            if function.bound and not function.class_method and not self._within(cls, function)
            for forward in self._of_method(cls, function)
        ]

    def uncalled(self, forward: Forward, way: Chain) -> bool:
        """Whether a way begins with the method, and no training, that runs its network: nothing is seen to call that."""
        function = way.place.function if self.program.is_self(forward.scope, forward.model) is not None else None
        return len(way.steps) == 1 and function is not None and not self.trains(function)

    def _may_be_network(self, cls: Class) -> bool:
        """Whether an object of a class is a network, or of one that derives from it: what it mixes in."""
        return any(is_network(self.program, c) for c in (cls, *self.program.below(cls)))

    def _of_method(self, cls: Class, function: Function) -> Iterator[Forward]:
        module, trains = function.module, self.trains(function)
        for call in syntax.every(function.node, ast.Call):
            called = _called(call)
            scope = module.scope_of(call)
            itself = isinstance(called, ast.Name) and self.program.is_self(scope, called) is not None
            if itself or (isinstance(called, ast.Name) and trains and self._is_method(cls, scope, called)):
                yield Forward(module, call, called, None)
            elif isinstance(called, ast.Attribute) and self.program.is_self(scope, called.value) is not None:
                whole = called.attr in ("forward", "__call__")
                if whole or (trains and self._computes(cls, scope, called, bool(syntax.given(call)))):
                    yield Forward(module, call, called.value, called.attr if called.attr != "__call__" else None)
            elif (
                trains
                and syntax.given(call)
                and isinstance(called := self._part(called), (ast.Attribute, ast.Subscript))
            ):
                field = syntax.whole(called)
                if isinstance(field, ast.Attribute) and self.program.is_self(scope, field.value) is not None:
                    if field.attr not in PLAIN and self._in_half(scope, called):
                        yield Forward(module, call, field.value, field.attr)

    def _within(self, cls: Class, function: Function) -> bool:
        """Whether a method is one that the forward of its objects comes by."""
        return any(function in self._inside(c) for c in (cls, *self.program.below(cls)))

    @kept
    def _inside(self, cls: Class) -> frozenset[Function]:
        """The methods that the forward of a network calls, with those that they do."""
        found = dict.fromkeys(f for name in ("forward", "__call__") for f in self.program._method(cls, name))
        todo = list(found)
        for function in todo:
            called = (c.func for c in syntax.every(function.node, ast.Call))
            names = {f.attr for f in called if isinstance(f, ast.Attribute) and _is_own(f.value)}
            for method in (m for name in names for m in self.program._method(cls, name)):
                if method not in found:
                    found[method] = None
                    todo.append(method)
        return frozenset(found)

    @kept
    def trains(self, function: Function) -> bool:
        """Whether a method trains its network, itself or by another of its methods."""
        return self._trains(function, frozenset())

    def _trains(self, function: Function, seen: frozenset[Function]) -> bool:
        for call in syntax.every(function.node, ast.Call) if function not in seen else ():
            if not isinstance(call.func, ast.Attribute):
                continue
            if call.func.attr in TRAINING:
                return True
            own = _is_own(call.func.value) and function.owner is not None
            for method in self.program._method(function.owner, call.func.attr) if own and function.owner else ():
                if self._trains(method, seen | {function}):
                    return True
        return False

    def _is_method(self, cls: Class, scope: Scope, called: ast.Name) -> bool:
        """Whether a name is that of a method of the object's own: `sample = self.sample`."""
        found = self.program.definitions(scope, called, guess=False)
        family = self.program.family(cls)
        methods = [f for f in found if isinstance(f, Function) and f.owner in family and f.bound]
        return 0 < len(methods) == len(found) and self._run(methods)

    def _run(self, methods: list[Function]) -> bool:
        """Whether methods run parts of their object, and do not train it."""
        return all(self.forwards.computes(f) and not self.trains(f) for f in methods)

    def _part(self, called: ast.expr) -> ast.expr:
        """What is called, where that is a method which runs it: `self.decoder` of `self.decoder.sample(x)`."""
        if not isinstance(called, ast.Attribute):
            return called
        methods = self.program.methods_named(called.attr)
        runs = any(map(self.forwards.computes, methods)) if methods else called.attr in RUNNING
        return called.value if runs else called

    def _computes(self, cls: Class, scope: Scope, called: ast.Attribute, given: bool) -> bool:
        """Whether a method of an object's own runs parts of it, or is a part that is given something: a network, or a layer
        that ran in half."""
        methods = self.program.methods(cls, called.attr)
        if methods:
            return self._run(methods)
        return given and called.attr not in PLAIN and self._in_half(scope, called)

    def _in_half(self, scope: Scope, part: ast.expr) -> bool:
        """Whether what a network keeps is a network, and no loss, or a layer that ran in half."""
        if KEEPERS.search(last_name(part) or ""):
            return False
        return any(
            is_network(self.program, kind) and not KEEPERS.search(kind.name)
            if isinstance(kind, Class)
            else kind.rpartition(".")[2] in RUN_IN_HALF
            for kind in self.forwards.values.instances.of(scope, part)
        )


def _is_own(expr: ast.expr) -> bool:
    return syntax.text(expr) in ("self", "super()")


def _called(call: ast.Call) -> ast.expr:
    """What is called, also where it is asked for by a name that is written out: `getattr(self, "sample")(x)`."""
    asked = syntax.by_name(call.func)
    name = asked[1].value if asked is not None and isinstance(asked[1], ast.Constant) else None
    if asked is None or not isinstance(name, str):
        return call.func
    return ast.copy_location(ast.Attribute(value=asked[0], attr=name, ctx=ast.Load()), call.func)
