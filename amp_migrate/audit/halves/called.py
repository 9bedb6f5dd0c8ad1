"""Which functions of the program a call may run that names none: of an object, of a value that is kept, of a `partial`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.program.module import Class, Function, Scope
from amp_migrate.audit.sites.lookalikes import PLAIN
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.values.origins import in_order

if TYPE_CHECKING:
    from amp_migrate.audit.halves.follow import Halves

BOOKS = frozenset("append extend update get values items".split())  # of a dictionary, or of a class that keeps values
ALIKE = 8  # classes of like name that an object out of sight may be of


def kept(halves: Halves, scope: Scope, func: ast.expr) -> list[Function]:
    """The functions of the program that a value may be: `score = dot_product`, what a factory gave, an attribute
    or an item that holds one."""
    found: list[Function] = []
    for origin in halves.values.instances.called(scope, func):
        if origin.kind == "function" and isinstance(origin.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(halves.program.function_of(origin.module, origin.node))
    return found


def of_partial(halves: Halves, scope: Scope, func: ast.expr) -> list[tuple[Function, int]] | None:
    """The functions of the program that a `partial` runs, and how many arguments each is given first."""
    found: list[tuple[Function, int]] = []
    for origin in in_order(halves.values.origins(scope, func)):
        call, program = origin.node, halves.program
        if not isinstance(call, ast.Call) or not call.args or origin.path:
            return None
        there = origin.module.scope_of(call)
        if program.dotted(there, call.func) != "functools.partial" or any(
            isinstance(a, ast.Starred) for a in call.args
        ):
            return None
        runs = program.definitions(there, call.args[0], guess=False)
        found += [(f, len(call.args) - 1) for f in runs if isinstance(f, Function)]
    return found or None


def made(halves: Halves, scope: Scope, func: ast.expr) -> list[Function]:
    """The one method that a call of an object runs, where it is seen how the object is made."""
    if not isinstance(func, ast.Attribute) or func.attr in PLAIN - BOOKS:
        return []
    if not halves.program.methods_named(func.attr):
        return []
    kinds = halves.values.instances.of(scope, func.value)
    held = (f for kind in kinds if isinstance(kind, Class) for f in halves.program._method(kind, func.attr))
    return halves.values.methods(scope, func.value, func.attr) or list(dict.fromkeys(held))


def objects(halves: Halves, scope: Scope, func: ast.expr) -> list[Function]:
    """What a call of an object runs that is seen to be made, and is no network: `TTA(model)(x)`."""
    kinds = halves.values.instances.of(scope, func)
    classes = [kind for kind in kinds if isinstance(kind, Class) and not halves.program.is_network(kind)]
    found = [f for cls in classes for f in halves.program._method(cls, "__call__")]
    return list(dict.fromkeys(found)) if len(classes) == len(kinds) else []


def methods(halves: Halves, scope: Scope, call: ast.Call) -> list[Function]:
    """The methods that a call of an object may run; where it is not seen how that is made, by what it is called:
    `predictions_saver.add` is a method of some `Saver`, `self.cls_head.loss` one of some `Head`."""
    func = call.func
    found = made(halves, scope, func)
    if found or not isinstance(func, ast.Attribute):
        return found
    name = last_name(func.value)
    word = name.strip("_").rpartition("_")[2].lower() if name is not None else ""
    if len(word) < 4:
        return []
    near = [
        f
        for f in halves.program.methods_named(func.attr)
        if f.owner is not None and f.owner.name.lower().endswith(word) and _takes(f, call)
    ]
    return near if len(near) <= ALIKE else []


def _takes(method: Function, call: ast.Call) -> bool:
    """Whether a method takes as many values as a call gives it by place."""
    a = method.node.args
    return a.vararg is not None or len(call.args) <= len(a.posonlyargs) + len(a.args) - method.bound
