"""Criteria with weights or products of their own that no set-up was given: O2 and O3 cast nothing but models, and a region would.

Apex: https://nvidia.github.io/apex/amp.html#o2-almost-fp16-mixed-precision
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import names_stored, walk
from amp_migrate.reading.regions.place import Regions
from amp_migrate.reading.values.operations import HALF, KEEPING
from amp_migrate.rules.migration import Migration

SHAPES = frozenset("shape size dim ndim device dtype norm sum exp pow".split()) | KEEPING
DEEP = 3  # functions that call each other


def left_in_float32(m: Migration, found: Regions, stmt: ast.stmt) -> ast.Call | None:
    """The call of such a criterion that is all a statement computes on what the model gave, all of which is seen to be tensors."""
    levels = {i.only("opt_level") for i in m.unit.inits}
    if not levels or not levels <= {"O2", "O3"} or not isinstance(stmt, (ast.Assign, ast.AugAssign)):
        return None
    module = found.scope.module
    calls = [n for n in walk(stmt.value) if isinstance(n, ast.Call)]
    if any(m.regions.is_forward(module, call) for call in calls):
        return None
    told = [call for call in calls if _multiplies(m, module, call)]
    return told[0] if len(told) == 1 and _given_tensors(m, found, told[0]) else None


def _multiplies(m: Migration, module: Module, call: ast.Call) -> bool:
    """Whether a call runs a network of the program, no model of Apex's, that computes what autocast casts to half."""
    classes = m.project.classes_of(module, call.func)
    if not classes or m.regions.forwards.is_model(module, call.func) or m.unit.holds_model(module, call.func):
        return False
    return all(c.is_module and _has_products(m, c.method("forward")) and not _has_networks(m, c) for c in classes)


def _has_products(m: Migration, function: Function | None, depth: int = DEEP) -> bool:
    if function is None or not depth:
        return False
    if "autocast" in function.module.source(function.node):
        return False
    for node in function.inside:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
        if isinstance(node, ast.Call):
            name = function.module.qualify(node.func) or ""
            last = node.func.attr if isinstance(node.func, ast.Attribute) else name.rpartition(".")[2]
            if last in HALF and (name.startswith("torch.") or not name):
                return True
            if any(_has_products(m, f, depth - 1) for f in m.project.resolved.get(node, ())):
                return True
    return False


def _has_networks(m: Migration, cls: ClassInfo) -> bool:
    """Whether objects of a class keep or are given a model, which runs in it."""
    init = cls.method("__init__")
    named = (
        n.attr for f in (init, cls.method("forward")) if f is not None for n in f.inside if isinstance(n, ast.Attribute)
    )
    return any(name in ("model", "net", "network", "module", "backbone") for name in named)


def _given_tensors(m: Migration, found: Regions, call: ast.Call) -> bool:
    """Whether all that comes from regions and that a criterion is given is used as a tensor there."""
    module = found.scope.module
    held = (s for r in found.found for s in m.regions.held(found.scope, r))
    computed = names_stored(*held) & found.values
    functions = [f for c in m.project.classes_of(module, call.func) if (f := c.method("forward")) is not None]
    for function in functions:
        given = dict(m.project.arguments(function, call))
        for name, value in given.items():
            if any(isinstance(n, ast.Name) and n.id in computed for n in walk(value)):
                if not isinstance(value, ast.Name) or not _used_as_tensor(function, name):
                    return False
    return bool(functions)


def _used_as_tensor(function: Function, name: str) -> bool:
    return any(_shows(function.module, n) for n in _reads(function.inside, name))


def _reads(nodes: Iterable[ast.AST], name: str) -> Iterable[ast.Name]:
    return (n for n in nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))


def _shows(module: Module, read: ast.Name) -> bool:
    """Whether a use is one of a tensor alone: `a.t()`, `a @ b`, `F.normalize(a)`."""
    around = module.parents.get(read)
    if isinstance(around, ast.Attribute):
        return around.attr in SHAPES | HALF
    if isinstance(around, ast.BinOp):
        return isinstance(around.op, (ast.MatMult, ast.Div, ast.Sub))
    return isinstance(around, ast.Call) and (module.qualify(around.func) or "").startswith("torch.")
