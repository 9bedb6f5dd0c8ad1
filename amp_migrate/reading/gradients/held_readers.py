"""Functions kept as values: `clip = partial(clip_grad_norm_, ...)`, `callbacks = [clip]`, `hook = lambda: ...`. Where one
of them reads gradients, calling what holds it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.reading.gradients.uses import reads_by_name
from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import FUNCTION_NODES, FunctionNode, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk

CONTAINERS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.IfExp, ast.BoolOp, ast.Starred, ast.keyword)


@dataclass(frozen=True)
class Held:
    """A function that is kept as a value: a reader if one of `functions` or of `parts` is, or where it has neither."""

    functions: tuple[Function, ...]
    parts: tuple[ast.AST, ...]  # of a lambda
    slots: tuple[Slot, ...]  # where it is kept


def held_readers(project: Project, module: Module) -> list[Held]:
    """Functions that a module keeps as values and that may read gradients; found once."""
    return project.once(_find, module) if "grad" in module.text else []


def _find(project: Project, module: Module) -> list[Held]:
    found: list[Held] = []
    for node in module.of(*FUNCTION_NODES, ast.Lambda, ast.Name, ast.Attribute):
        if isinstance(node, FUNCTION_NODES):
            if node in project.functions and (given := tuple(_decorated(project, module, node))):
                found.append(Held((project.functions[node],), (), given))
            continue
        if not isinstance(node, ast.Lambda) and not _is_value(module, node):
            continue
        slots = tuple(_kept_in(project, module, node))
        if not slots:
            continue
        if isinstance(node, ast.Lambda):
            found.append(Held((), tuple(walk(node.body)), slots))
        elif functions := _functions(project, module, node):
            found.append(Held(tuple(functions), (), slots))
        elif reads_by_name((module.qualify(node) or "").rpartition(".")[2]):
            found.append(Held((), (), slots))
    return found


def _decorated(project: Project, module: Module, node: FunctionNode) -> Iterator[Slot]:
    """The parameters that a function is passed for by its decorators: of `register` for `@register`, of a function within `on`
    for `@trainer.on("step")`."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            outer = [f.scope for f in project.resolved.get(decorator, ())]
            makers = [f for f in project.functions.values() if f.scope.parent in outer]
        else:
            makers = _functions(project, module, decorator)
        for maker in makers:
            own = maker.scope.params[1:] if maker.cls is not None else maker.scope.params
            yield from (Slot(maker.scope, name) for name in own[:1])


def _functions(project: Project, module: Module, node: ast.AST) -> list[Function]:
    """The project's functions that a name or a bound method stands for."""
    defined = [project.functions[d] for d in project.definitions(module, node) if d in project.functions]
    if defined:
        return defined
    if not isinstance(node, ast.Attribute):
        return []
    return [m for cls in project.classes_of(module, node.value) for m in cls.variants_of(node.attr)]


def _kept_in(project: Project, module: Module, node: ast.AST) -> Iterator[Slot]:
    """The variables that an expression is assigned to, and the parameters it is passed for."""
    child = node
    parent = module.parents.get(node)
    while isinstance(parent, CONTAINERS) or _is_partial(parent):
        child, parent = parent, module.parents.get(parent)  # type: ignore[arg-type, assignment]
    if isinstance(parent, ast.Assign):
        found = [project.slot(module, t) for t in parent.targets]
        yield from (s for s in found if s is not None)
    elif isinstance(parent, ast.Call):
        for function in project.resolved.get(parent, []):
            for name, value in project.arguments(function, parent):
                if value is child or (isinstance(child, ast.keyword) and value is child.value):
                    yield Slot(function.scope, name)
        if isinstance(parent.func, ast.Attribute) and parent.func.attr in ("append", "add", "insert"):
            slot = project.slot(module, parent.func.value)
            if slot is not None:
                yield slot


def _is_value(module: Module, node: ast.AST) -> bool:
    """Whether an expression is a name or attribute that is read, and neither called nor part of a longer one."""
    if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
        return False
    parent = module.parents.get(node)
    return not isinstance(parent, ast.Attribute) and not (isinstance(parent, ast.Call) and parent.func is node)


def _is_partial(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and called_name(node) == "partial"
