"""Does anything clear the gradients from one step to the next: in the loop that repeats it, or in what that loop calls?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.program.turns import of_one
from amp_migrate.reading.units.unit import Step, Unit

_NAMED = re.compile(r"zero_?grad|(clear|reset)\w*grad", re.IGNORECASE)


def piles_up(unit: Unit, step: Step) -> bool:
    """Whether a loop runs backward and step again and again while nothing that it runs clears gradients."""
    own = {s.call for s in unit.steps}
    losses = {a for loss in unit.losses for a in (loss.call, *loss.module.ancestors(loss.call))}
    for module, loop in _around(unit.project, step.module, step.call, set()):
        turn = list(_run(unit.project, module, loop, own))
        if any(code.root in losses for code in turn):
            clearing = ((code.module, node) for code in turn for node in code.clearing)
            return all(_of_another(unit, step, home, node) for home, node in clearing)
    return False


def _of_another(unit: Unit, step: Step, module: Module, node: ast.AST) -> bool:
    """Whether it is another optimizer's `zero_grad`: of those that a loop steps, the last is no other, and not all."""
    if not isinstance(node, ast.Attribute):
        return False
    if _left_over(module, node.value) and _loops_over(step.module, step.optimizer):
        return True
    numbers = {
        unit.optimizers.number(step.home or step.module, step.optimizer),
        unit.optimizers.number(module, node.value),
    }
    return None not in numbers and len(numbers) == 2


def _left_over(module: Module, node: ast.expr) -> bool:
    """Whether a name is what a loop over several ended with: only loops bind it, and none of them stands around it."""
    if not isinstance(node, ast.Name) or _loops_over(module, node):
        return False
    scope = next((s for s in module.scope_of(node).chain() if node.id in s.bindings), None)
    bound = scope.bindings[node.id] if scope is not None else []
    return bool(bound) and all(
        isinstance(loop := module.parents.get(b), ast.For) and loop.target is b and not of_one(loop.iter) for b in bound
    )


def _loops_over(module: Module, node: ast.expr) -> bool:
    """Whether a name stands for one after another in a loop around it."""
    around = (a for a in module.ancestors(node) if isinstance(a, ast.For))
    return isinstance(node, ast.Name) and any(
        isinstance(a.target, ast.Name) and a.target.id == node.id and not of_one(a.iter) for a in around
    )


def clearing(project: Project, module: Module) -> bool:
    """Whether anything in a file clears gradients; see `Project.once`."""
    return any(map(clears, module.of(ast.Name, ast.keyword, ast.Attribute, ast.Assign, ast.Delete, ast.Call)))


def _around(project: Project, module: Module, node: ast.AST, seen: set[Function]) -> Iterator[tuple[Module, ast.AST]]:
    """The loops around a place, the innermost first, also around the one place that calls its function."""
    for parent in module.ancestors(node):
        if isinstance(parent, LOOP_NODES):
            yield module, parent
        if isinstance(parent, FUNCTION_NODES):
            break
    function = project.function_of(module, node)
    calls = project.calls.get(function, []) if function is not None else []
    if function is not None and function not in seen and len(calls) == 1:
        yield from _around(project, *calls[0], {*seen, function})


@dataclass(frozen=True)
class _Code:
    """A loop or a function, with all that stands in it: what it calls, and what clears gradients."""

    module: Module
    root: ast.AST
    calls: list[tuple[ast.Call, str]]
    clearing: list[ast.AST]


def _code(module: Module, root: ast.AST) -> _Code:
    nodes = walk(root)
    calls = [(n, called_name(n)) for n in nodes if isinstance(n, ast.Call)]
    return _Code(module, root, calls, [n for n in nodes if clears(n)])


def _run(project: Project, module: Module, loop: ast.AST, own: set[ast.Call]) -> Iterator[_Code]:
    """All that runs in a loop. A call of what is not known may be one of any function of its name."""
    seen: set[Function] = set()
    read = project.once(_read)
    todo = [_code(module, loop)]
    while todo:
        code = todo.pop()
        yield code
        for call, name in code.calls:
            if call not in own:
                called = [
                    f for f in project.resolved.get(call) or project.once(_by_name).get(name, []) if f not in seen
                ]
                seen.update(called)
                for function in called:
                    if function not in read:
                        read[function] = _code(function.module, function.node)
                    todo.append(read[function])


def _read(project: Project) -> dict[Function, _Code]:
    """What has been read of the program's functions so far."""
    return {}


def _by_name(project: Project) -> dict[str, list[Function]]:
    found: dict[str, list[Function]] = {}
    for function in project.functions.values():
        found.setdefault(function.name, []).append(function)
    return found


def clears(node: ast.AST) -> bool:
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
    func = node.func if isinstance(node, ast.Call) else None
    return isinstance(func, ast.Name) and func.id in ("setattr", "delattr") and "grad" in ast.unparse(node)
