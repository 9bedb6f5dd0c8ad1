"""Which calls are handed what `amp.master_params` yields: by itself, collected, kept under a name or given back by a helper."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.gradients.uses import NOT_READERS
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import identifiers, reached, walk
from amp_migrate.reading.units.unit import Unit

COLLECTORS = frozenset(
    "list tuple set sorted iter filter map zip enumerate chain len isinstance print id append extend".split()
)
_LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)
_DISPLAYS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.List, ast.Tuple, ast.Set, ast.Starred)
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
    if isinstance(parent, ast.Call) and called_name(parent) in ("append", "extend"):
        if isinstance(parent.func, ast.Attribute):
            yield from _reads(module, parent.func.value)
    elif parent is not None and _collects(parent, value):
        yield module, parent
    elif isinstance(parent, _LOOPS) and parent.iter is value:
        names = identifiers(parent.target)
        around = module.parents[parent] if isinstance(parent, ast.comprehension) else parent
        yield from ((module, n) for n in walk(around) if isinstance(n, ast.Name) and n.id in names and _is_read(n))
    elif isinstance(parent, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and parent.value is value:
        if isinstance(parent, ast.NamedExpr):
            yield module, parent
        for target in parent.targets if isinstance(parent, ast.Assign) else [parent.target]:
            yield from _reads(module, target)
    elif isinstance(parent, ast.Return):
        function = unit.project.function_of(module, parent)
        yield from unit.project.calls.get(function, ()) if function is not None else ()


def _collects(parent: ast.AST, value: ast.AST) -> bool:
    """Whether an expression holds what a part of it does: `list(ps)`, `[*ps]`, `ps + others`, `ps if fp16 else []`."""
    if isinstance(parent, ast.IfExp):
        return value is not parent.test
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, ast.Add)
    return isinstance(parent, _DISPLAYS) or (isinstance(parent, ast.Call) and called_name(parent) in COLLECTORS)


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
