"""Is a loop one over the parts of a batch, each a micro-batch of one step, or over all data?"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import LOOP_NODES, Module
from amp_migrate.reading.program.project import Project

_PARTS = frozenset("split chunk tensor_split array_split unbind split_with_sizes".split())
_SAME = frozenset("zip enumerate list tuple iter reversed tqdm trange cat stack to cuda".split())
DEPTH = 5


def of_one_batch(project: Project, module: Module, node: ast.expr, depth: int = DEPTH) -> bool:
    """Whether what is gone through is cut from a whole, `torch.split(batch, size)`, or what a loop around, here or where the
    function is called, has for one turn."""
    if isinstance(node, ast.Call):
        name = called_name(node)
        given = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        return name in _PARTS or (name in _SAME and any(of_one_batch(project, module, a, depth) for a in given))
    if isinstance(node, (ast.Subscript, ast.Attribute)):
        return of_one_batch(project, module, node.value, depth)
    scope = module.scope_of(node).lookup(node.id) if isinstance(node, ast.Name) and depth else None
    if scope is None or not isinstance(node, ast.Name):
        return False
    return any(_bound_to_one(project, scope.module, node.id, bound, depth - 1) for bound in scope.bindings[node.id])


def _bound_to_one(project: Project, module: Module, name: str, bound: ast.AST, depth: int) -> bool:
    """Whether one binding of a name makes it that: by an assignment, a loop, or the calls of its function."""
    if isinstance(bound, ast.arg):
        function = project.function_of(module, bound)
        calls = project.calls.get(function, ()) if function is not None else ()
        given = [(m, v) for m, c in calls if function for p, v in project.arguments(function, c) if p == name]
        return bool(given) and all(of_one_batch(project, m, v, depth) for m, v in given)
    holder = module.parents.get(bound)
    while isinstance(holder, (ast.Tuple, ast.List, ast.Starred)):
        holder = module.parents.get(holder)
    if isinstance(holder, LOOP_NODES):
        return True
    return isinstance(holder, ast.Assign) and of_one_batch(project, module, holder.value, depth)
