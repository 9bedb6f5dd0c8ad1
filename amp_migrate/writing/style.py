"""The habits of a file that emitted code follows: its quotes, how it names torch."""

from __future__ import annotations

import ast
from functools import cached_property

from amp_migrate.reading.module import Module, Scope


class Style:
    """How one file writes things."""

    def __init__(self, module: Module) -> None:
        self.module = module

    @cached_property
    def quote(self) -> str:
        """The quote that most one-line strings of the file use; double quotes where they tie."""
        single = double = 0
        for node in ast.walk(self.module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.lineno == node.end_lineno:
                parent = self.module.parents.get(node)
                if isinstance(parent, (ast.JoinedStr, ast.Expr)):
                    continue
                start = self.module.lines[node.lineno - 1][node.col_offset : node.col_offset + 1]
                single += start == b"'"
                double += start == b'"'
        return "'" if single > double else '"'

    def torch_name(self, scope: Scope) -> tuple[str, ast.stmt | None]:
        """The name of the torch module in a scope; with it the statement before which to import it, if nothing does."""
        for outer in scope.chain():
            for name, target in outer.imports.items():
                if target == "torch":
                    return name, None
        return "torch", self._import_place()

    def _import_place(self) -> ast.stmt | None:
        """Where `import torch` goes: before the first plain import that is neither a docstring's nor `__future__`'s."""
        first: ast.stmt | None = None
        for stmt in self.module.tree.body:
            if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant):
                continue
            if isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__":
                continue
            first = stmt
            break
        for stmt in self.module.tree.body:
            if isinstance(stmt, ast.ImportFrom) and (stmt.module or "").startswith("torch"):
                return stmt
            if isinstance(stmt, ast.Import) and any(a.name.startswith("torch") for a in stmt.names):
                return stmt
        return first

    @cached_property
    def indent(self) -> str:
        """One level of indentation."""
        for node in ast.walk(self.module.tree):
            body = getattr(node, "body", None)
            if isinstance(node, (ast.FunctionDef, ast.If, ast.For, ast.ClassDef)) and isinstance(body, list):
                if body[0].lineno > node.lineno and body[0].col_offset > node.col_offset:
                    line = self.module.lines[body[0].lineno - 1].decode()
                    return str(line[node.col_offset : body[0].col_offset])
        return "    "
