"""Collections of parts of which each forward of a network runs those that its caller picks: `self.heads[task](x)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.sites.unused import IN_TURN, has_parameters, in_sight, named_elsewhere

COLLECTIONS = ("torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.Sequential")
ASKED = frozenset({"append", "extend", "keys", "update", "insert"})  # of a collection, and runs none of it


def picked(program: Program, cls: Class) -> Iterator[tuple[str, str]]:
    """The fields of a network that hold parts with parameters, and of which its forward reads nothing but what parameters of
    it, that every call has to give, pick: with that place as it is written."""
    if not in_sight(program, cls):
        return
    run = _run(program, cls)
    read = [(f, n) for f in run for n in syntax.every(f.node, ast.Attribute) if syntax.text(n.value) == "self"]
    read = [(f, n) for f, n in read if isinstance(n.ctx, ast.Load)]
    names = dict.fromkeys(n.attr for _, n in read)
    texts = {n.value for f in run for n in syntax.every(f.node, ast.Constant)}
    for name in names if names.keys().isdisjoint(IN_TURN) else ():
        uses = [_use(program, f, n) for f, n in read if n.attr == name]
        picks = [use for use in uses if use]
        if picks and None not in uses and name not in texts and _holds(program, cls, name):
            if not named_elsewhere(program, name):
                yield name, picks[0]


def _run(program: Program, cls: Class) -> list[Function]:
    """The forward of a network with the methods that it comes by."""
    found = list(program._method(cls, "forward"))
    for function in found:
        for name in dict.fromkeys(n.attr for n in syntax.every(function.node, ast.Attribute)):
            found += [f for f in program._method(cls, name) if f not in found and name != "__init__"]
    return found


def _use(program: Program, function: Function, field: ast.Attribute) -> str | None:
    """What a caller picks, as it is written, where a field is read; "" where nothing of it runs, None where more may."""
    module = function.module
    parent = module.parents.get(field)
    if isinstance(parent, ast.Subscript) and parent.value is field and isinstance(parent.ctx, ast.Load):
        return syntax.text(parent) if function.name == "forward" and _given(function, parent.slice) else None
    around = module.parents.get(parent) if parent is not None else None
    if isinstance(parent, ast.Attribute) and parent.attr in ASKED and isinstance(around, ast.Call):
        return ""
    return "" if isinstance(parent, ast.Call) and syntax.text(parent.func) == "len" else None


def _given(function: Function, place: ast.expr) -> bool:
    """Whether a place, or where a slice ends, is a parameter that has no default, as it came: `task`, `int(task)`, `x.task`."""
    if isinstance(place, ast.Slice):
        return place.step is None and any(_given(function, e) for e in (place.lower, place.upper) if e is not None)
    if isinstance(place, ast.Call) and len(place.args) <= 1 and not place.keywords:
        inner = place.args[0] if place.args else place.func
        return syntax.text(place.func) in ("int", "str") or not place.args if _given(function, inner) else False
    while isinstance(place, ast.Attribute):
        place = place.value
    if not isinstance(place, ast.Name) or place.id == "self":
        return False
    a = function.node.args
    needed = [*a.posonlyargs, *a.args][: len(a.posonlyargs) + len(a.args) - len(a.defaults)]
    needed += [p for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is None]
    stored = (n.id for n in syntax.every(function.node, ast.Name) if not isinstance(n.ctx, ast.Load))
    return place.id in {p.arg for p in needed} and place.id not in stored


def _holds(program: Program, cls: Class, name: str) -> bool:
    """Whether a field holds a collection of parts with parameters, several of them."""
    several = False
    for c in program.family_up(cls):
        for stmt in syntax.every(c.node, ast.Assign):
            if any(syntax.text(t) == f"self.{name}" for t in stmt.targets):
                value = stmt.value
                if not isinstance(value, ast.Call):
                    return False
                if program.dotted(c.module.scope_of(value), value.func) not in COLLECTIONS:
                    return False
                several = several or _several(program, c, value)
        for call, on in c.module.method_calls("append"):
            if syntax.text(on) == f"self.{name}" and _repeated(c.module, call):
                several = several or any(isinstance(a, ast.Call) and has_parameters(program, c, a) for a in call.args)
    return several


def _several(program: Program, cls: Class, value: ast.Call) -> bool:
    for node in syntax.walk(value):
        elements: list[ast.expr] = []
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            elements = [node.elt, node.elt]
        elif isinstance(node, ast.DictComp):
            elements = [node.value, node.value]
        elif isinstance(node, ast.List):
            elements = node.elts
        elif isinstance(node, ast.Dict):
            elements = node.values
        if sum(isinstance(e, ast.Call) and has_parameters(program, cls, e) for e in elements) > 1:
            return True
    return False


def _repeated(module: Module, call: ast.Call) -> bool:
    return any(isinstance(a, (ast.For, ast.While)) for a in module.ancestors(call))


def in_turn(program: Program, networks: list[Class]) -> bool:
    """Whether a network hands a place that it counts to a part of it, which may come by all of them so."""
    for function in (f for c in networks for f in _run(program, c)):
        counted: set[str] = set()
        for loop in syntax.every(function.node, ast.For):
            if isinstance(loop.iter, ast.Call) and syntax.text(loop.iter.func) in ("range", "enumerate"):
                first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
                counted |= {first.id} if isinstance(first, ast.Name) else set()
        for call in syntax.every(function.node, ast.Call):
            if any(isinstance(v, ast.Name) and v.id in counted for v in syntax.given(call)):
                if isinstance(call.func, ast.Attribute) and syntax.text(call.func.value) == "self":
                    return True
    return False
