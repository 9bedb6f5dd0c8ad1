"""Which methods a call may run of an object of which nothing is known, where what else is asked of it tells its class:
`trainer.backward(loss)` beside `trainer.net(x)`, in a function that nothing in sight calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.dtypes import INTEGERS, SHAPES
from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.common import COMMON, tells_nothing
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.values.values import Values

# What tensors, layers and optimizers have, too.
ANYBODYS = COMMON | SHAPES | INTEGERS | frozenset("data grad device dtype shape param_groups state weight bias".split())
MOST = 4  # classes; of more, nothing is said


@kept
def told_by_use(values: Values, module: Module, call: ast.Call) -> list[Function]:
    """The methods of the classes whose objects have what else is asked of the object that a method of a common name is called
    of."""
    func = call.func
    if not isinstance(func, ast.Attribute) or not isinstance(func.value, (ast.Name, ast.Attribute)):
        return []
    program, scope = values.program, module.scope_of(call)
    methods = [f for f in program.methods_named(func.attr) if f.bound and _fits(f, call)]
    if not methods or not tells_nothing(module, func) or program.imported(scope, func.value) is not None:
        return []
    if any(o.kind not in ("parameter", "unknown") for o in values.origins(scope, func.value)):
        return []
    asked = frozenset(_asked(module, func))
    found = [f for f in methods if f.owner is not None and not asked.isdisjoint(_has(values, f.owner))]
    return found if len({f.owner for f in found}) <= MOST else []


def _fits(function: Function, call: ast.Call) -> bool:
    """Whether a call gives a method no more than it takes."""
    return len(call.args) + len(call.keywords) < len(function.parameters)


def _asked(module: Module, method: ast.Attribute) -> Iterator[str]:
    """What else a function asks of the object that one of its methods is taken of."""
    around, wanted = module.function_around(method), syntax.text(method.value)
    for node in syntax.every(around.node if around is not None else module.tree, ast.Attribute):
        if node.attr not in ANYBODYS and syntax.text(node.value) == wanted:
            yield node.attr


@kept
def _has(values: Values, cls: Class) -> set[str]:
    """The names of what the objects of a class can do, and are given to keep."""
    family = values.program.family(cls)
    kept_there = {
        node.attr
        for c in family
        for node in syntax.every(c.node, ast.Attribute)
        if isinstance(node.ctx, ast.Store) and syntax.text(node.value) == "self"
    }
    return kept_there | {name for c in family for name in c.methods}
