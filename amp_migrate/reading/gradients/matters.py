"""Which statements matter to gradients: the walk over all paths tells apart only what conditions on those decide."""

from __future__ import annotations

import ast
from collections.abc import Collection

from amp_migrate.reading.gradients.place import GradientReader
from amp_migrate.reading.gradients.walked import evaluated, leaves
from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.view import Node


class Matters:
    """Statements that the migration changes (`placed`), calls of interest, functions that have such, readers, and exits."""

    def __init__(
        self,
        reader: GradientReader,
        placed: Collection[ast.AST],
        calls: Collection[ast.Call],
        functions: Collection[Function],
    ) -> None:
        self.reader = reader
        self.placed = placed
        self.calls = calls
        self.functions = functions
        self._known: dict[Node, bool] = {}

    def to_gradients(self, module: Module, node: Node) -> bool:
        """Whether a statement, or one in it, may do something to gradients, read them, or leave its block."""
        if node not in self._known:
            self._known[node] = any(self._acts(module, n) for n in node.walk())
        return self._known[node]

    def _acts(self, module: Module, node: Node) -> bool:
        stmt = node.stmt
        if isinstance(stmt, (ast.Return, ast.Raise, ast.Break, ast.Continue)) or leaves(module, stmt):
            return True
        return stmt in self.placed or any(self._touches(module, part) for part in evaluated(node))

    def _touches(self, module: Module, part: ast.AST) -> bool:
        if not isinstance(part, (ast.Attribute, ast.Call)):
            return False
        if isinstance(part, ast.Call):
            if part in self.calls or called_name(part) in ("zero_grad", "step", "backward"):
                return True
            if any(f in self.functions for f in self.reader.project.resolved.get(part, ())):
                return True
        return self.reader.reads_here(module, part)
