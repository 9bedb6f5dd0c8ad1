"""Functions kept as values: `clip = partial(clip_grad_norm_, ...)`, `callbacks = [clip]`, `hook = lambda: ...`. Where one
of them reads gradients, calling what holds it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amp_migrate.reading.definitions import Function
from amp_migrate.reading.gradient_uses import reads_by_name
from amp_migrate.reading.lookup import Slot
from amp_migrate.reading.module import Module
from amp_migrate.reading.project import Project

CONTAINERS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.IfExp, ast.BoolOp, ast.Starred, ast.keyword)


@dataclass(frozen=True)
class Held:
    """A function that is kept as a value: a reader if one of `functions` or of `parts` is, or where it has neither."""

    functions: tuple[Function, ...]
    parts: tuple[ast.AST, ...]  # of a lambda
    slots: tuple[Slot, ...]  # where it is kept


class HeldReaders:
    """Functions kept as values that may read gradients, in one program; see `Project.once`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._found: dict[Module, list[Held]] = {}

    def kept(self, module: Module) -> list[Held]:
        """Those that a module keeps."""
        if module not in self._found:
            self._found[module] = list(self._find(module)) if "grad" in module.text else []
        return self._found[module]

    def _find(self, module: Module) -> Iterator[Held]:
        for node in module.nodes:
            if not isinstance(node, ast.Lambda) and not _is_value(module, node):
                continue
            slots = tuple(self._kept_in(module, node))
            if not slots:
                continue
            if isinstance(node, ast.Lambda):
                yield Held((), tuple(ast.walk(node.body)), slots)
            elif functions := self._functions(module, node):
                yield Held(tuple(functions), (), slots)
            elif reads_by_name((module.qualify(node) or "").rpartition(".")[2]):
                yield Held((), (), slots)

    def _functions(self, module: Module, node: ast.AST) -> list[Function]:
        """The project's functions that a name or a bound method stands for."""
        defined = self.project.functions.get(self.project.definition(module, node) or node)
        if defined is not None:
            return [defined]
        if not isinstance(node, ast.Attribute):
            return []
        methods = (cls.method(node.attr) for cls in self.project.classes_of(module, node.value))
        return [m for m in methods if m is not None]

    def _kept_in(self, module: Module, node: ast.AST) -> Iterator[Slot]:
        """The variables that an expression is assigned to, and the parameters it is passed for."""
        child = node
        parent = module.parents.get(node)
        while isinstance(parent, CONTAINERS) or _is_partial(parent):
            child, parent = parent, module.parents.get(parent)  # type: ignore[arg-type, assignment]
        if isinstance(parent, ast.Assign):
            found = [self.project.slot(module, t) for t in parent.targets]
            yield from (s for s in found if s is not None)
        elif isinstance(parent, ast.Call):
            for function in self.project.resolved.get(parent, []):
                for name, value in self.project.arguments(function, parent):
                    if value is child or (isinstance(child, ast.keyword) and value is child.value):
                        yield Slot(function.scope, name)
            if isinstance(parent.func, ast.Attribute) and parent.func.attr in ("append", "add", "insert"):
                slot = self.project.slot(module, parent.func.value)
                if slot is not None:
                    yield slot


def _is_value(module: Module, node: ast.AST) -> bool:
    """Whether an expression is a name or attribute that is read, and neither called nor part of a longer one."""
    if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
        return False
    parent = module.parents.get(node)
    return not isinstance(parent, ast.Attribute) and not (isinstance(parent, ast.Call) and parent.func is node)


def _is_partial(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "partial"
