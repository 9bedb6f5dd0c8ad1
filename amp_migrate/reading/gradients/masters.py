"""Which calls are handed what `amp.master_params` yields: by itself, collected, kept under a name or given back by a helper."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.gradients.uses import NOT_READERS
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import reached
from amp_migrate.reading.units.unit import Unit

COLLECTORS = frozenset(
    "list tuple set sorted iter filter map zip enumerate chain len isinstance print id append extend".split()
)
_LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)
_COLLECTED = (
    ast.ListComp,
    ast.SetComp,
    ast.GeneratorExp,
    ast.IfExp,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Starred,
    ast.BinOp,
)
Value = tuple[Module, ast.AST]


def given_masters(unit: Unit) -> dict[ast.Call, Module]:
    """The calls that are handed the parameters: their business is with the gradients."""
    starts: list[Value] = [(s.module, s.call) for s in unit.sites if s.short == "master_params" and s.call is not None]
    found: dict[ast.Call, Module] = {}
    for module, value in reached(starts, lambda held: _further(unit, held)):
        parent = module.parents.get(value)
        parent = module.parents.get(parent) if isinstance(parent, ast.keyword) else parent
        if isinstance(parent, ast.Call) and value is not parent.func and called_name(parent) not in COLLECTORS:
            found[parent] = module
    return {call: module for call, module in found.items() if called_name(call) not in NOT_READERS}


def _further(unit: Unit, held: Value) -> Iterator[Value]:
    """What holds the parameters because something else does."""
    module, value = held
    parent = module.parents.get(value)
    added = not isinstance(parent, ast.BinOp) or isinstance(parent.op, ast.Add)
    if (isinstance(parent, _COLLECTED) and added) or (
        isinstance(parent, ast.Call) and called_name(parent) in COLLECTORS
    ):
        yield from _collected(module, parent, value)
    elif isinstance(parent, _LOOPS) and parent.iter is value:
        around = module.parents.get(parent) if isinstance(parent, ast.comprehension) else parent
        names = {n.id for n in ast.walk(parent.target) if isinstance(n, ast.Name)}
        inside = ast.walk(around) if around is not None else ()
        yield from ((module, n) for n in inside if isinstance(n, ast.Name) and n.id in names and _is_read(n))
    elif isinstance(parent, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and parent.value is value:
        if isinstance(parent, ast.NamedExpr):
            yield module, parent
        for target in parent.targets if isinstance(parent, ast.Assign) else [parent.target]:
            yield from _reads(module, target)
    elif isinstance(parent, ast.Return):
        function = unit.project.function_of(module, parent)
        yield from unit.project.calls.get(function, ()) if function is not None else ()


def _collected(module: Module, outer: ast.AST, value: ast.AST) -> Iterator[Value]:
    if not isinstance(outer, ast.Call) or called_name(outer) not in ("append", "extend"):
        if not isinstance(outer, ast.IfExp) or value is not outer.test:
            yield module, outer
    elif isinstance(outer.func, ast.Attribute):
        yield from _reads(module, outer.func.value)


def _reads(module: Module, target: ast.expr) -> Iterator[Value]:
    """The places that read a name, in its scope, or an attribute, in its file."""
    if isinstance(target, ast.Name):
        scope = module.scope_of(target)
        yield from ((module, n) for n in module.loads.get(target.id, ()) if module.scope_of(n) is scope)
    elif isinstance(target, ast.Attribute):
        text = module.source(target)
        same = (n for n in module.named.get(target.attr, ()) if isinstance(n, ast.Attribute) and _is_read(n))
        yield from ((module, n) for n in same if module.source(n) == text)


def _is_read(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)
