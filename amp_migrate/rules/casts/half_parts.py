"""Parts of a network that are made half in place: `m.half()` of each `m` out of `model.modules()`, in a function that
`apply` is given, of `self.norm` in a method of the network."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import Function, argument
from amp_migrate.reading.program.handed_back import SAME_OBJECT_METHODS
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.older.fp16_utils import is_model

LISTING = frozenset("modules named_modules children named_children".split())
# Whoever calls or trains the network runs these.
RUN_BY_TORCH = frozenset("__init__ __call__ forward train eval".split())


def where_made(m: Migration, module: Module, call: ast.Call, half: ast.expr) -> list[tuple[Module, ast.stmt]]:
    """The statements by which a call makes parts of a network half that stay in it, for of a tensor it gives a copy: itself, the
    loop over the parts, or what applies the function that it stands in."""
    stmt = module.parents.get(call)
    if not isinstance(stmt, ast.Expr):
        return []
    while isinstance(half, ast.Call) and isinstance(half.func, ast.Attribute) and half.func.attr in SAME_OBJECT_METHODS:
        half = half.func.value
    if isinstance(half, (ast.Attribute, ast.Subscript)):
        own = (_of_network(m, module, half) or _of_model(m, module, half)) and _runs(m.project, module, half)
        return [(module, stmt)] if own else []
    wholes = _wholes(m, module, half) if isinstance(half, ast.Name) else ()
    return [(where, by) for where, whole, by in wholes if _holds_parts(m, where, whole)]


def _holds_parts(m: Migration, module: Module, whole: ast.expr) -> bool:
    return _runs(m.project, module, whole) and (is_model(m, module, whole) or _of_network(m, module, whole))


def _of_model(m: Migration, module: Module, part: ast.expr) -> bool:
    """Whether an expression is held by one of the unit's models: `model.norm`."""
    while isinstance(part, (ast.Attribute, ast.Subscript)):
        part = part.value
        if is_model(m, module, part):
            return True
    return False


def _of_network(m: Migration, module: Module, node: ast.expr) -> bool:
    """Whether an expression is the network whose method it stands in, also in a function within that, or held by it."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    cls = m.project.class_around(module.scope_of(node))
    return module.is_self(node) and cls is not None and cls.is_module


def _wholes(m: Migration, module: Module, part: ast.Name) -> Iterator[tuple[Module, ast.expr, ast.stmt]]:
    """What a variable is a part of, and by what: what a loop goes through the modules of, or `apply` is called on."""
    for around in module.ancestors(part):
        if isinstance(around, (ast.For, ast.AsyncFor)):
            over = around.iter
            if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr in LISTING:
                if any(isinstance(n, ast.Name) and n.id == part.id for n in walk(around.target)):
                    yield module, over.func.value, around
    function = m.project.function_of(module, part)
    if function is not None and function.by_place and function.by_place[-1].arg == part.id:
        yield from _applied(m, function)


def _applied(m: Migration, function: Function) -> Iterator[tuple[Module, ast.expr, ast.stmt]]:
    """What a function is applied to: `model.apply(freeze)`."""
    for module in m.unit.reach:
        for call, method in module.method_calls.get("apply", ()) if function.name in module.text else ():
            if len(call.args) == 1 and function.node in m.project.definitions(module, call.args[0]):
                yield module, method.value, module.statement(call)


def _runs(project: Project, module: Module, node: ast.AST) -> bool:
    """Whether a program comes by a place: not in a method for others that nothing calls."""
    around = [project.functions[a] for a in module.ancestors(node) if a in project.functions]
    return not around or around[-1].name in RUN_BY_TORCH or bool(project.calls.get(around[-1]))


def only_tensors(m: Migration) -> bool:
    """Whether each optimizer is seen to be made of single tensors that a function makes, an image say, and of no network's
    parameters: `Adam([image], lr=0.1)`."""
    prepared = {init.call for init in m.unit.inits}
    for group in m.unit.optimizers.places:
        given = [
            (module, node.value)
            for module in m.unit.reach
            for node in m.project.once(Occurrences, module).assigned_to(group)
            if node.value not in prepared
        ]
        if not given or not all(isinstance(v, ast.Call) and _of_tensors(where, v) for where, v in given):
            return False
    return bool(m.unit.optimizers.places)


def _of_tensors(module: Module, made: ast.Call) -> bool:
    given = argument(made, 0, "params")
    if not isinstance(given, (ast.List, ast.Tuple)) or not given.elts:
        return False
    return all(isinstance(e, ast.Name) and _is_tensor(module, e) for e in given.elts)


def _is_tensor(module: Module, name: ast.Name) -> bool:
    """Whether whatever gives a name its value above a line makes a tensor."""
    scope = module.scope_of(name).lookup(name.id)
    bound = scope.bindings.get(name.id, ()) if scope is not None and scope.module is module else ()
    above = [module.parents.get(b) for b in bound if getattr(b, "lineno", 0) < name.lineno]
    values = [s.value if isinstance(s, ast.Assign) else None for s in above]
    return bool(values) and all(isinstance(v, ast.Call) and _makes_tensor(module, v) for v in values)


def _makes_tensor(module: Module, call: ast.Call) -> bool:
    name = module.qualify(call.func) or ""
    return name.startswith("torch.") and name.count(".") == 1 and name != "torch.load"
