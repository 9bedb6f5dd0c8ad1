"""Networks that a function makes for itself and only runs: no optimizer comes near their weights."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.logic import LOOKING
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import values_returned, walk

TRAINS = frozenset({"backward", "step", "scale_loss"})
DEPTH = 4  # functions that a network is handed on to
WRAPPERS = ("torch.nn.", "apex.parallel.")
ASKING = LOOKING | {"sum"}


def run_apart(project: Project, module: Module, value: ast.expr) -> bool:
    """Whether an expression is a variable of one function alone, which is given what calls make there, and neither leaves it nor
    meets what trains, in it or in a function that it is handed to: another network than any that is trained elsewhere under
    the same name."""
    function = project.function_of(module, value)
    if function is None or not isinstance(value, ast.Name) or value.id in function.scope.params:
        return False
    slot = project.slot(module, value)
    if slot is None or slot.holder is not function.scope:
        return False
    given = [_given(module, b) for b in function.scope.bindings.get(value.id, ())]
    calls = [c for c in given if isinstance(c, ast.Call)]
    made = [c for c in calls if not _wraps(project, module, c, value.id)]
    if not made or len(calls) < len(given):
        return False
    return all(_makes(project, module, c, 0) for c in made) and _only_run(project, function, value.id, 0)


def _given(module: Module, binding: ast.AST) -> ast.expr | None:
    stmt = module.parents.get(binding)
    return stmt.value if isinstance(stmt, ast.Assign) and binding in stmt.targets else None


def _wraps(project: Project, module: Module, call: ast.Call, name: str) -> bool:
    """`model = model.to(device)`, `model = DataParallel(model)`: what it holds already."""
    head = call.func
    while isinstance(head, (ast.Attribute, ast.Call)):
        head = head.value if isinstance(head, ast.Attribute) else head.func
    if isinstance(head, ast.Name) and head.id == name:
        return True
    wrapper = (project.qualify(module, call.func) or "").startswith(WRAPPERS)
    return wrapper and any(isinstance(a, ast.Name) and a.id == name for a in call.args)


def _makes(project: Project, module: Module, call: ast.Call, depth: int) -> bool:
    """Whether a call makes a new network: of a class, by a method of one that only makes such, by a function that does."""
    called = [f for f in project.resolved.get(call, ()) if f.name != "__init__"]
    if not called:
        func = call.func
        while isinstance(func, (ast.Attribute, ast.Call)) and project.find_class(module, func) is None:
            func = func.value if isinstance(func, ast.Attribute) else func.func
        return project.find_class(module, func) is not None
    return depth < DEPTH and all(_hands_out(project, f, depth + 1) for f in called)


def _hands_out(project: Project, function: Function, depth: int) -> bool:
    """Whether a function that trains nothing returns what it makes itself."""
    returned = values_returned(function.node.body)
    if not returned or _trains(function):
        return False
    for value in returned:
        made: list[ast.expr | None] = [value]
        if isinstance(value, ast.Name) and value.id not in function.scope.params:
            made = [_given(function.module, b) for b in function.scope.bindings.get(value.id, ())]
            made = [c for c in made if not (isinstance(c, ast.Call) and _wraps(project, function.module, c, value.id))]
        makes = (isinstance(c, ast.Call) and (_of_cls(c) or _makes(project, function.module, c, depth)) for c in made)
        if not (made and all(makes)):
            return False
    return True


def _of_cls(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "cls"


def _only_run(project: Project, function: Function, name: str, depth: int) -> bool:
    """Whether a function that trains nothing runs what a variable of its holds, and hands it to nothing that may train it."""
    module = function.module
    for node in walk(function.node):
        if isinstance(node, ast.Attribute) and node.attr in TRAINS:
            return False
        if isinstance(node, (*FUNCTION_NODES, ast.Lambda)) and node is not function.node:
            if any(isinstance(n, ast.Name) and n.id == name for n in walk(node)):
                return False
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            if not _harmless(project, module, node, depth):
                return False
    return True


def _harmless(project: Project, module: Module, node: ast.Name, depth: int) -> bool:
    """Whether a variable is only asked or run where it stands, or handed on to what does no more."""
    around = module.parents.get(node)
    if isinstance(around, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.If)):
        return True
    if isinstance(around, ast.Attribute):
        call = module.parents.get(around)
        called = isinstance(call, ast.Call) and call.func is around
        return not called or not any(_trains(f) for f in project.resolved.get(call, ()))  # type: ignore[call-overload]
    call = module.parents.get(around) if isinstance(around, ast.keyword) else around
    if not isinstance(call, ast.Call):
        return False
    if call.func is node:
        return not any(_trains(f) for f in project.resolved.get(call, ()))
    name = project.qualify(module, call.func) or ""
    if name.startswith(WRAPPERS) or name in ASKING or ast.unparse(call.func) in ASKING:
        return True
    functions = project.resolved.get(call, ())
    given = [(f, p) for f in functions for p, v in project.arguments(f, call) if v is node]
    return bool(given) and depth < DEPTH and all(_only_run(project, f, p, depth + 1) for f, p in given)


def _trains(function: Function) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in TRAINS for n in walk(function.node))
