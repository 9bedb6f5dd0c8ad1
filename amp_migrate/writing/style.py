"""The habits of a file that emitted code follows: its quotes, how it names torch."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from functools import cached_property

from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.processes import named_by
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import reached, walk

BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For, ast.While, ast.With, ast.Try)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Style:
    """How one file writes things."""

    def __init__(self, module: Module, project: Project | None = None) -> None:
        """`project`: what a file imports is looked into, where that is given."""
        self.module, self.project = module, project

    @cached_property
    def quote(self) -> str:
        """The quote that most one-line strings of the file use; double quotes where they tie."""
        single = double = 0
        for node in self.module.of(ast.Constant):
            if isinstance(node.value, str) and node.lineno == node.end_lineno:
                parent = self.module.parents.get(node)
                if isinstance(parent, (ast.JoinedStr, ast.Expr)):
                    continue
                start = self.module.lines[node.lineno - 1][node.col_offset : node.col_offset + 1]
                single += start == b"'"
                double += start == b'"'
        return "'" if single > double else '"'

    def torch_name(self, scope: Scope, at: ast.stmt | None = None) -> tuple[str, ast.stmt | None]:
        """The name of the torch module in a scope; with it the statement before which to import it, if nothing does.

        A file that loads neither torch nor Apex may be imported where there is no torch: there the import goes into the
        function that uses it, where Apex's stood, else before the statement `at`.
        """
        for outer in scope.chain():
            for name, target in outer.imports.items():
                if target == "torch" and self._bound_when_run(outer, name):
                    return name, None
        if self.module.star_imports and self.module.meaning("torch", scope) == "torch":
            return "torch", None
        function = next((s.node for s in scope.chain() if isinstance(s.node, FUNCTIONS)), None)
        if function is not None and not self._loads_torch:
            return "torch", self._place_within(function, at)
        return "torch", self._import_place()

    def _bound_when_run(self, scope: Scope, name: str) -> bool:
        """Whether an import gives a name in a run: not where all stand under `if TYPE_CHECKING:`."""
        around = [[a for a in self.module.ancestors(b) if isinstance(a, ast.If)] for b in scope.bindings.get(name, ())]
        return not around or any(
            not any(ast.unparse(i.test).rpartition(".")[2] == "TYPE_CHECKING" for i in ifs) for ifs in around
        )

    @cached_property
    def _loads_torch(self) -> bool:
        """Whether whoever imports the file gets torch with it, directly, through Apex or through the program's own files; a star
        may have given the name to something else."""
        project = self.project
        if project is None or self.module.star_imports:
            return any(map(_loads, self.module.tree.body))

        def imported(module: Module) -> set[Module]:
            named = (s for s in module.tree.body if isinstance(s, (ast.Import, ast.ImportFrom)))
            return {m for stmt in named for m in named_by(project, module, stmt)}

        return any(_loads(stmt) for module in reached([self.module], imported) for stmt in module.tree.body)

    def _place_within(self, function: ast.FunctionDef | ast.AsyncFunctionDef, at: ast.stmt | None) -> ast.stmt:
        """Where a function imports torch: before the import of Apex that comes before `at`, else before `at` itself; at its
        start, or below its docstring where a comment stands above what follows."""
        if at is None:
            first, above = self.module.scopes[function].first, function.body[0]
            between = self.module.lines[above.end_lineno or 0 : first.lineno - 1] if above is not first else []
            return above if any(line.strip().startswith(b"#") for line in between) else first
        for stmt in (at, *self.module.ancestors(at)):
            if stmt is function:
                break
            if not isinstance(stmt, ast.stmt):
                continue
            for other in self.module.block(stmt):
                if other is stmt:
                    break
                if isinstance(other, ast.Import) and any(a.name.split(".")[0] == "apex" for a in other.names):
                    return other
                if isinstance(other, ast.ImportFrom) and (other.module or "").split(".")[0] == "apex":
                    return other
        return at

    def _import_place(self) -> ast.stmt | None:
        """Where `import torch` goes: before what is imported from torch, else before the first import at the top that is not of
        the standard library, else before the first statement that is neither a docstring nor `__future__`'s import."""
        for stmt in self.module.tree.body:
            if any(name.startswith("torch") for name in _imported(stmt)):
                return stmt
        rest = [s for s in self.module.tree.body if not _stands_first(s)]
        for stmt in rest:
            if not isinstance(stmt, (ast.Import, ast.ImportFrom)):
                break
            if not all(name.partition(".")[0] in sys.stdlib_module_names for name in _imported(stmt)):
                return stmt
        return next(iter(rest), None)

    @cached_property
    def indent(self) -> str:
        """One level of indentation: the one that most blocks of the file have."""
        return common_step(steps(self.module, self.module.tree))


def _imported(stmt: ast.stmt) -> list[str]:
    """The modules that an import names."""
    if isinstance(stmt, ast.ImportFrom):
        return ["." * stmt.level + (stmt.module or "")]
    return [a.name for a in stmt.names] if isinstance(stmt, ast.Import) else []


def _stands_first(stmt: ast.stmt) -> bool:
    docstring = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
    return docstring or "__future__" in _imported(stmt)


def _loads(stmt: ast.stmt) -> bool:
    """Whether no run comes past a statement of a file without torch, loaded directly or through Apex: nor where an import of it
    fails, as in `try: from apex import amp` with a handler that raises."""
    if isinstance(stmt, ast.Try) and any(map(_loads, stmt.body)):
        ends = (h.body[-1] for h in stmt.handlers)
        return all(
            isinstance(end, ast.Raise) or any(map(_loads, h.body)) for end, h in zip(ends, stmt.handlers, strict=True)
        )
    return any(name.startswith("torch") or name.partition(".")[0] == "apex" for name in _imported(stmt))


def steps(module: Module, node: ast.AST) -> Counter[str]:
    """By how much the blocks at and below a node are indented, and how many of them by that."""
    found: Counter[str] = Counter()
    for holder in walk(node):
        body = getattr(holder, "body", None)
        if not isinstance(body, list) or not isinstance(holder, BLOCKS):
            continue
        first = body[0]
        if first.lineno > holder.lineno and first.col_offset > holder.col_offset:
            before = module.lines[first.lineno - 1][: first.col_offset]
            if not before.strip():  # else it stands behind the colon of a header of several lines
                found[before[holder.col_offset :].decode()] += 1
    return found


def common_step(found: Counter[str]) -> str:
    """The most common step, the smallest of equally common ones; four spaces where there is none."""
    return min(found, key=lambda step: (-found[step], len(step))) if found else "    "
