"""Does anything clear the gradients from one step to the next: in the loop that repeats it, or in what that loop calls?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.units.unit import Step, Unit

_NAMED = re.compile(r"zero_?grad|(clear|reset)\w*grad", re.IGNORECASE)


def piles_up(unit: Unit, step: Step) -> bool:
    """Whether a loop runs backward and step again and again while nothing that it runs clears gradients."""
    own = {s.call for s in unit.steps}
    losses = {loss.call for loss in unit.losses}
    for nodes in _around(unit.project, step.module, step.call, set()):
        turn = list(_run(unit.project, nodes, own))
        if any(n in losses for n in turn):
            return not any(map(_clears, turn))
    return False


def clearing(project: Project, module: Module) -> bool:
    """Whether anything in a file clears gradients; see `Project.once`."""
    return any(map(_clears, module.nodes))


def _around(project: Project, module: Module, node: ast.AST, seen: set[Function]) -> Iterator[list[ast.AST]]:
    """What each loop around a place runs, the innermost first, also of the one place that calls its function."""
    for parent in module.ancestors(node):
        if isinstance(parent, LOOP_NODES):
            yield [parent]
        if isinstance(parent, FUNCTION_NODES):
            break
    function = project.function_of(module, node)
    calls = project.calls.get(function, []) if function is not None else []
    if function is not None and function not in seen and len(calls) == 1:
        yield from _around(project, *calls[0], {*seen, function})


def _run(project: Project, nodes: list[ast.AST], own: set[ast.Call]) -> Iterator[ast.AST]:
    """All that runs with some nodes. A call of what is not known may be one of any function of its name."""
    seen: set[Function] = set()
    while nodes:
        for node in ast.walk(nodes.pop()):
            yield node
            if isinstance(node, ast.Call) and node not in own:
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                called = project.resolved.get(node) or project.once(_by_name).get(name, [])
                nodes += [f.node for f in called if f not in seen]
                seen.update(called)


def _by_name(project: Project) -> dict[str, list[Function]]:
    found: dict[str, list[Function]] = {}
    for function in project.functions.values():
        found.setdefault(function.name, []).append(function)
    return found


def _clears(node: ast.AST) -> bool:
    """`zero_grad` by whatever name, also as an option; `p.grad = None`, `del p.grad`, `p.grad.zero_()`."""
    if isinstance(node, ast.Name):
        return bool(_NAMED.search(node.id))
    if isinstance(node, ast.keyword):
        off = isinstance(node.value, ast.Constant) and not node.value.value
        return bool(_NAMED.search(node.arg or "")) and not off
    if isinstance(node, ast.Attribute):
        return bool(_NAMED.search(node.attr)) or (node.attr == "zero_" and "grad" in ast.unparse(node.value))
    if isinstance(node, ast.Assign | ast.Delete):
        return any(isinstance(t, ast.Attribute) and t.attr == "grad" for t in node.targets)
    return (
        isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr") and "grad" in ast.unparse(node)
    )
