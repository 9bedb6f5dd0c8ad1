"""Collections of parts of which a network runs some alone, by their places: of four inner layers `self.inner[0](x)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.sites.unused import IN_TURN, has_parameters, in_sight, named_elsewhere
from amp_migrate.audit.values.values import Values

LISTS = ("torch.nn.ModuleList", "torch.nn.Sequential")


@dataclass
class _Parts:
    """What a field of `self` holds, and which places of it are read; `certain`: whether that is all."""

    made: int = 0  # at least
    places: set[int] = field(default_factory=set)
    certain: bool = True


def unused_items(values: Values, cls: Class) -> Iterator[tuple[str, int, int]]:
    """The fields of a network that hold more parts, all with parameters, than it ever runs; how many, and how many it runs."""
    program = values.program
    if not in_sight(program, cls):
        return
    found: dict[str, _Parts] = {}
    texts = set[object]()  # `getattr(self, "inner")`
    for c in program.family(cls):
        for node in syntax.walk(c.node):
            if isinstance(node, ast.Attribute) and syntax.text(node.value) == "self":
                _note(values, cls, c.module, node, found.setdefault(node.attr, _Parts()))
            elif isinstance(node, ast.Constant):
                texts.add(node.value)
    for name, parts in found.items() if found.keys().isdisjoint(IN_TURN) else ():
        if name in texts:
            continue
        if parts.certain and parts.places and len(parts.places) < parts.made and not named_elsewhere(program, name):
            yield name, parts.made, len(parts.places)


def _note(values: Values, cls: Class, module: Module, node: ast.Attribute, parts: _Parts) -> None:
    """Take down what is done with a field where it stands."""
    parent = module.parents.get(node)
    if isinstance(node.ctx, ast.Store):
        made = _held(values, cls, module, parent.value, node) if isinstance(parent, ast.Assign) else None
    elif isinstance(parent, ast.Subscript):
        place = _place(parent)
        parts.certain = parts.certain and place is not None and isinstance(parent.ctx, ast.Load)
        parts.places |= {place} if place is not None else set()
        return
    elif isinstance(parent, ast.Attribute) and parent.attr == "append":
        call = module.parents.get(parent)
        made = _appended(values, cls, module, call) if isinstance(call, ast.Call) else None
    elif isinstance(parent, ast.Call) and _is_list(values, module, parent) and _same(module, parent, node):
        made = 0  # `self.inner = nn.ModuleList(self.inner)`
    else:
        made = None
    parts.certain = parts.certain and made is not None
    parts.made += made or 0


def _place(item: ast.Subscript) -> int | None:
    at, sign = item.slice, 1
    if isinstance(at, ast.UnaryOp) and isinstance(at.op, ast.USub):
        at, sign = at.operand, -1
    return sign * at.value if isinstance(at, ast.Constant) and isinstance(at.value, int) else None


def _is_list(values: Values, module: Module, call: ast.Call) -> bool:
    return values.program.dotted(module.scope_of(call), call.func) in LISTS


def _same(module: Module, call: ast.Call, node: ast.Attribute) -> bool:
    """Whether a call makes of a field what that field is given."""
    stmt = module.parents.get(call)
    return isinstance(stmt, ast.Assign) and [syntax.text(t) for t in stmt.targets] == [syntax.text(node)]


def _held(values: Values, cls: Class, module: Module, value: ast.expr, node: ast.Attribute) -> int | None:
    """How many parts a field is given at once; None where that is not seen, or where one may have no parameters."""
    if isinstance(value, ast.Call) and _is_list(values, module, value) and not value.keywords:
        given = value.args
        if len(given) == 1 and values.program.dotted(module.scope_of(value), value.func) == LISTS[0]:
            if syntax.text(given[0]) == syntax.text(node):
                return 0
            return _held(values, cls, module, given[0], node)
        return len(given) if all(_part(values, cls, g) for g in given) else None
    if isinstance(value, ast.List):
        return len(value.elts) if all(_part(values, cls, e) for e in value.elts) else None
    if isinstance(value, ast.ListComp) and len(value.generators) == 1 and not value.generators[0].ifs:
        return _count(values, module, value.generators[0].iter) if _part(values, cls, value.elt) else None
    return None


def _part(values: Values, cls: Class, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and has_parameters(values.program, cls, node)


def _appended(values: Values, cls: Class, module: Module, call: ast.Call) -> int | None:
    """How many parts a line appends: as often as the loops around it run."""
    if len(call.args) != 1 or not _part(values, cls, call.args[0]):
        return None
    times = 1
    for around in module.ancestors(call):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return times if around.name == "__init__" else None
        if isinstance(around, ast.For):
            count = _count(values, module, around.iter)
            stops = any(isinstance(n, (ast.Break, ast.Continue)) for n in syntax.walk(around))
            if count is None or stops:
                return None
            times *= count
        elif not isinstance(around, ast.Expr):
            return None
    return None


def _count(values: Values, module: Module, items: ast.expr) -> int | None:
    """How often a loop over something runs at least; None where that is not seen."""
    if isinstance(items, (ast.List, ast.Tuple)):
        return None if any(isinstance(e, ast.Starred) for e in items.elts) else len(items.elts)
    if isinstance(items, ast.Call) and isinstance(items.func, ast.Name):
        first = items.args[0] if items.args else None
        if items.func.id == "enumerate" and first is not None:
            return _count(values, module, first)
        single = items.func.id == "range" and len(items.args) == 1
        if not single or first is None:
            return None
        if isinstance(first, ast.Call) and syntax.text(first.func) == "len" and len(first.args) == 1:
            return _count(values, module, first.args[0])
        return first.value if isinstance(first, ast.Constant) and isinstance(first.value, int) else None
    if not isinstance(items, (ast.Name, ast.Attribute)):
        return None
    origins = list(values.of(module, items))
    counts = [
        _count(values, o.module, o.node) if isinstance(o.node, (ast.List, ast.Tuple)) and not o.path else None
        for o in origins
    ]
    known = [c for c in counts if c is not None]
    return min(known) if known and len(known) == len(counts) else None
