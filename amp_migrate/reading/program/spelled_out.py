"""Calls whose unpacked arguments are written out where a name is bound: `options = dict(model=model)`, `train(**options)`;
and functions that hand on what they are given: `def train(*args, **kwargs): return run(*args, **kwargs)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from amp_migrate.reading.program.definitions import Function, entries
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.module import Module


def spelled_out(module: Module, call: ast.Call) -> ast.Call | None:
    """The same call with what it unpacks in its place; None where it unpacks nothing that is written out elsewhere and
    stays as it is."""
    args: list[ast.expr] = []
    keywords: list[ast.keyword] = []
    for arg in call.args:
        value = _bound(module, arg.value) if isinstance(arg, ast.Starred) else None
        args += value.elts if isinstance(value, (ast.Tuple, ast.List)) else [arg]
    for keyword in call.keywords:
        value = _bound(module, keyword.value) if keyword.arg is None else None
        given = [ast.keyword(name, entry) for name, entry in entries(value)] if value is not None else []
        keywords += given or [keyword]
    if args == call.args and keywords == call.keywords:
        return None
    return ast.copy_location(ast.Call(call.func, args, keywords), call)


def _bound(module: Module, node: ast.expr) -> ast.expr | None:
    if not isinstance(node, ast.Name) or not all(only_looks(module, use) for use in other_uses(module, node)):
        return None
    return single_assignment(module, node)


def other_uses(module: Module, name: ast.Name) -> Iterator[ast.Name]:
    """The other reads of a variable."""
    owner = module.scope_of(name).lookup(name.id)
    for use in module.loads.get(name.id, ()):
        if use is not name and module.scope_of(use).lookup(name.id) is owner:
            yield use


def only_looks(module: Module, use: ast.Name) -> bool:
    """Whether a use of a dict leaves it as it is: an entry read, a message printed, arguments passed with `**`."""
    parent = module.parents.get(use)
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("get", "items", "keys", "values", "copy")
    if isinstance(parent, ast.Call):
        return ast.unparse(parent.func).split(".")[0] in ("print", "len", "logging", "logger", "log", "str", "repr")
    return isinstance(parent, (ast.FormattedValue, ast.Compare)) or (isinstance(parent, ast.keyword) and not parent.arg)


OWN = ast.Constant(None)  # stands for an argument that the function gives itself
DEEP = 10  # arguments that functions add which hand on what they are given


def passed_on(function: Function, call: ast.Call) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Calls in a function that unpack its own `*args` and `**kwargs`, and the same with what a call of the function gives
    in their place. `OWN` holds the place of what it names itself."""
    own = {p.arg for p in function.parameters}
    for inner, stars, unpacked in function.unpacking:
        args: list[ast.expr] = []
        for arg in inner.args:
            args += call.args[len(function.positional) :] if arg in stars else [OWN]
        named = [k for k in call.keywords if k.arg is not None and k.arg not in own] if unpacked else []
        yield inner, ast.Call(inner.func, args, named)


class HandedOn(NamedTuple):
    """A function, and what it is given by way of the `*args` and `**kwargs` of others."""

    function: Function
    args: tuple[ast.expr, ...]
    keywords: tuple[ast.keyword, ...]
    longest: int  # arguments that are told apart: a function that hands on to itself may add one each time

    @property
    def call(self) -> ast.Call:
        return ast.Call(OWN, [*self.args], [*self.keywords])

    def passed_on(self) -> Iterator[tuple[ast.Call, ast.Call]]:
        return passed_on(self.function, self.call)

    def tells(self, handed: ast.Call) -> bool:
        """Whether something of what was given is handed on."""
        return bool(handed.keywords) or (len(handed.args) <= self.longest and any(a is not OWN for a in handed.args))
