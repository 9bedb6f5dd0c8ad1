"""Which parts of a network a call of it trains: what it comes to read of `self` with gradients on, for what it is given.

A network of several modes (`forward(x, mode)`) runs other parts in each. Too many parts rather than too few: branches that are
open are all gone through, methods that are called with what is known of their arguments. Nothing is told where the network
itself is handed on, or goes through whatever parts it has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from amp_migrate.audit.paths.facts import NOTHING, Facts, outcome
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.sites.unused import ASKED, IN_TURN
from amp_migrate.audit.sites.writers import stops_gradients

OPEN = frozenset({*IN_TURN, "modules", "named_modules", "__dict__", "enable_grad", "set_grad_enabled"})
MOST = 60  # methods that are gone through


class _Unknown(Exception):
    """What a network reads of itself cannot be told."""


def trained(program: Program, cls: Class, call: ast.Call, method: str = "forward") -> frozenset[str] | None:
    """The fields of an object that a call of it may give gradients to; None where that cannot be told."""
    found = _Reading(program, cls)
    functions = program._method(cls, method)
    try:
        for function in functions:
            found.method(function, known(program, function, call, NOTHING))
    except _Unknown:
        return None
    return frozenset(found.fields) if functions else None


def known(program: Program, function: Function, call: ast.Call, around: Facts) -> Facts:
    """What a call tells of a method's parameters, by constants that it passes or leaves to be the default."""
    given = program.arguments(function, call, bound=True)
    if given is None:
        return NOTHING
    told = {name for name, _ in function_defaults(function)} - given.keys()
    values = [*given.items(), *((n, v) for n, v in function_defaults(function) if n in told)]
    changed = {n.id for n in syntax.every(function.node, ast.Name) if not isinstance(n.ctx, ast.Load)}
    return frozenset(fact for name, value in values if name not in changed for fact in _facts(name, value, around))


def function_defaults(function: Function) -> Iterator[tuple[str, ast.expr]]:
    a = function.node.args
    positional = [*a.posonlyargs, *a.args]
    yield from zip([p.arg for p in positional[len(positional) - len(a.defaults) :]], a.defaults, strict=True)
    yield from ((p.arg, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None)


def _facts(name: str, value: ast.expr, around: Facts) -> Iterator[tuple[str, bool]]:
    if isinstance(value, ast.Constant):
        yield f"{name} is None", value.value is None
        yield name, bool(value.value)
        yield f"{name} == {value.value!r}", True
    elif isinstance(value, ast.Name):  # which the caller was given
        for key, holds in around:
            if key == value.id or key.startswith(f"{value.id} "):
                yield name + key[len(value.id) :], holds


class _Reading:
    """The fields of `self` that methods of a class read with gradients on."""

    def __init__(self, program: Program, cls: Class) -> None:
        self.program = program
        self.cls = cls
        self.fields: set[str] = set()
        self._seen: set[tuple[Function, Facts]] = set()

    def method(self, function: Function, facts: Facts) -> None:
        if (function, facts) in self._seen:
            return
        self._seen.add((function, facts))
        if len(self._seen) > MOST:
            raise _Unknown
        if not any(stops_gradients(self.program, function.module, d) for d in function.node.decorator_list):
            self._block(function, function.node.body, facts)

    def _block(self, function: Function, body: Sequence[ast.stmt], facts: Facts) -> bool:
        """Whether a body surely ends the function."""
        for stmt in body:
            if isinstance(stmt, ast.If):
                came_out = outcome(stmt.test, facts)
                self._below(function, stmt.test, facts)
                ended = [
                    self._block(function, branch, facts)
                    for branch, when in ((stmt.body, True), (stmt.orelse, False))
                    if came_out is not (not when)
                ]
                if all(ended):
                    return True
            elif isinstance(stmt, (ast.With, ast.AsyncWith)):
                contexts = [item.context_expr for item in stmt.items]
                if any(stops_gradients(self.program, function.module, c) for c in contexts):
                    continue
                for context in contexts:
                    self._below(function, context, facts)
                if self._block(function, stmt.body, facts):
                    return True
            elif isinstance(stmt, (ast.For, ast.While, ast.Try)):
                for part in syntax.children(stmt):
                    if isinstance(part, ast.stmt):
                        self._block(function, [part], facts)
                    else:
                        self._below(function, part, facts)
            else:
                self._below(function, stmt, facts)
                if isinstance(stmt, (ast.Return, ast.Raise)):
                    return True
        return False

    def _below(self, function: Function, node: ast.AST, facts: Facts) -> None:
        if isinstance(node, ast.IfExp) and (came_out := outcome(node.test, facts)) is not None:
            self._below(function, node.body if came_out else node.orelse, facts)
            return
        if isinstance(node, (ast.Name, ast.Attribute)) and syntax.last(node) in OPEN:
            raise _Unknown
        if isinstance(node, ast.Attribute) and syntax.text(node.value) == "self":
            self._field(function, node, facts)
            return
        if isinstance(node, ast.Call) and syntax.text(node.func) == "super":
            around = function.module.parents.get(node)
            owner = function.owner if isinstance(around, ast.Attribute) else None
            for base in self.program.bases(owner) if owner is not None else ():
                for inherited in (
                    self.program._method(base, syntax.last(around)) if isinstance(around, ast.expr) else ()
                ):
                    self.method(inherited, NOTHING)
            return
        if isinstance(node, ast.Name) and node.id == "self":
            raise _Unknown
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.fields.add(node.value)  # getattr(self, "layer1")
        for child in syntax.children(node):
            self._below(function, child, facts)

    def _field(self, function: Function, node: ast.Attribute, facts: Facts) -> None:
        if not isinstance(node.ctx, ast.Load):
            return
        around = function.module.parents.get(node)
        call = around if isinstance(around, ast.Call) and around.func is node else None
        if call is not None and _detached(function, call):
            return
        methods = self.program._method(self.cls, node.attr)
        for method in methods:
            self.method(method, known(self.program, method, call, facts) if call is not None else NOTHING)
        if not methods and not (isinstance(around, ast.Attribute) and around.attr in ASKED):
            self.fields.add(node.attr)


def _detached(function: Function, call: ast.Call) -> bool:
    """Whether no gradient comes back to what a call gives: `self.net(x).detach()`, or a name that is only read so."""
    parent = function.module.parents.get(call)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("detach", "data")
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return False
    name = parent.targets[0].id
    read = [n for n in syntax.every(function.node, ast.Name) if n.id == name and isinstance(n.ctx, ast.Load)]
    around = [function.module.parents.get(n) for n in read]
    return bool(read) and all(isinstance(a, ast.Attribute) and a.attr in ("detach", "data") for a in around)
