"""Functions that read gradients, kept as values: `clip = partial(clip_grad_norm_, ...)`, `callbacks = [clip]`, callable
objects. Calling what holds one reads gradients as the function itself does."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from amp_migrate.reading.definitions import Function
from amp_migrate.reading.lookup import Slot
from amp_migrate.reading.module import Module
from amp_migrate.reading.project import Project

CONTAINERS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.IfExp, ast.BoolOp, ast.Starred, ast.keyword)


class HeldReaders:
    """Which variables, attributes and parameters may hold a function that reads gradients."""

    def __init__(
        self,
        project: Project,
        modules: Iterable[Module],
        reads: Callable[[Module, ast.AST], bool],
        function_reads: Callable[[Function], bool],
        named: Callable[[str], bool],
    ) -> None:
        self.project = project
        self._reads = reads
        self._function_reads = function_reads
        self._named = named
        seeds = {s for m in modules if "grad" in m.text for s in self._seeds(m)}
        self.slots: set[Slot] = project.reaches(seeds)

    def called(self, module: Module, call: ast.Call) -> bool:
        """Whether a call runs a held reader, or an object whose `__call__` reads gradients."""
        if isinstance(call.func, (ast.Name, ast.Attribute, ast.Subscript)):
            slot = self.project.slot(module, call.func)
            if slot is not None and slot in self.slots:
                return True
            for cls in self.project.classes_of(module, call.func):
                method = cls.method("__call__")
                if method is not None and self._function_reads(method):
                    return True
        return False

    def _seeds(self, module: Module) -> Iterator[Slot]:
        for node in module.nodes:
            if self._is_reader(module, node):
                yield from self._kept_in(module, node)

    def _is_reader(self, module: Module, node: ast.AST) -> bool:
        """Whether an expression is, without being called, a function that reads gradients."""
        if isinstance(node, ast.Lambda):
            return any(self._reads(module, n) for n in ast.walk(node.body))
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            return False
        parent = module.parents.get(node)
        if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):
            return False
        found = self._functions(module, node)
        if found:
            return any(self._function_reads(f) for f in found)
        name = (module.qualify(node) or "").rpartition(".")[2]
        return bool(name) and self._named(name)

    def _functions(self, module: Module, node: ast.Name | ast.Attribute) -> list[Function]:
        """The project's functions that a name or a bound method stands for."""
        defined = self.project.functions.get(self.project.definition(module, node) or node)
        if defined is not None:
            return [defined]
        if isinstance(node, ast.Name):
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


def _is_partial(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "partial"
