"""What the files of one program say: who calls whom, who imports what, which options there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from amp_migrate.verify.commandline.options import Options
from amp_migrate.verify.coverage import arguments
from amp_migrate.verify.coverage.statements import Spot, Statement, statements

Marks: TypeAlias = set[tuple[str, Spot]]  # by file


@dataclass
class Program:
    """What is known of one side: all its files and options, which statements were `marked` and which of them `ran`, and
    whether its runs were ended after so many `steps`. `argv` is what they were given."""

    tree: Path
    marked: Marks
    ran: Marks
    steps: int | None = None
    argv: tuple[str, ...] = ()
    _parsed: dict[str, ast.Module | None] = field(default_factory=dict)
    _calls: dict[str, dict[str, list[Call]]] = field(default_factory=dict)  # by file and name
    _imports: dict[str, set[str]] = field(default_factory=dict)

    @cached_property
    def texts(self) -> dict[str, bytes]:
        """All files; only those in which a word stands are parsed."""
        files = sorted(file for file in self.tree.rglob("*.py") if file.is_file())
        return {file.relative_to(self.tree).as_posix(): file.read_bytes() for file in files}

    def parsed(self, path: str) -> ast.Module | None:
        if path not in self._parsed:
            try:
                self._parsed[path] = ast.parse(self.texts[path])
            except (KeyError, SyntaxError, ValueError, RecursionError):
                self._parsed[path] = None
        return self._parsed[path]

    def files_with(self, word: str) -> Iterator[tuple[str, ast.Module]]:
        for path, text in self.texts.items():
            if word.encode() in text and (tree := self.parsed(path)) is not None:
                yield path, tree

    @cached_property
    def options(self) -> Options:
        trees = {path: tree for word in ("add_argument", "click") for path, tree in self.files_with(word)}
        return arguments.find(trees.values())

    def asks(self, test: ast.expr, wanted: bool) -> list[str]:
        """What to change on the command line so that `test` comes out as `wanted`."""
        return arguments.without_given(arguments.asked(test, self.options, wanted), self.argv)

    def calls(self, name: str) -> list[Call]:
        """Of functions and methods of that name, in the whole project; not of `name` in a library."""
        found: list[Call] = []
        for path, tree in self.files_with(name):
            if path not in self._calls:
                self._calls[path] = self._calls_in(path, tree)
            found += self._calls[path].get(name, ())
        return found

    def may_call(self, call: Call, path: str, within: tuple[int, int]) -> bool:
        """Whether it may be a call of the function at these lines of the file `path`: not one from inside it, and a plain
        name in another file only where that file imports this one."""
        if call.path == path:
            return not within[0] <= call.line <= within[1]
        return not call.plain or module_name(path) in self.imports(call.path)

    def imports(self, path: str) -> set[str]:
        """The last names of the modules that a file imports, and the names it imports from them."""
        if path not in self._imports:
            found = set()
            for node in ast.walk(self.parsed(path) or ast.Module([], [])):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    found |= {alias.name.split(".")[-1] for alias in node.names}
                if isinstance(node, ast.ImportFrom):
                    found.add((node.module or "").split(".")[-1])
            self._imports[path] = found
        return self._imports[path]

    def _calls_in(self, path: str, tree: ast.Module) -> dict[str, list[Call]]:
        found: dict[str, list[Call]] = {}
        libraries = set(self._libraries(tree))
        for statement in statements(tree):
            for call in _calls(statement):
                base: ast.expr = call.func
                while isinstance(base, ast.Attribute):
                    base = base.value
                name = getattr(call.func, "attr", None) or getattr(call.func, "id", None)
                if name and not (base is not call.func and isinstance(base, ast.Name) and base.id in libraries):
                    found.setdefault(name, []).append(Call(path, call.lineno, statement, base is call.func))
        return found

    def _libraries(self, tree: ast.Module) -> Iterator[str]:
        """The names of modules that are no part of the project."""
        for node in ast.walk(tree):
            for alias in node.names if isinstance(node, ast.Import) else ():
                top = alias.name.split(".")[0]
                if top not in self.modules:
                    yield alias.asname or top

    @cached_property
    def modules(self) -> set[str]:
        """What the files and folders of the project are called."""
        return {part.removesuffix(".py") for path in self.texts for part in path.split("/")}

    def named(self, name: str) -> list[tuple[str, int]]:
        """Where a function is named without being called: handed on, or kept."""
        return [
            (path, node.lineno)
            for path, tree in self.files_with(name)
            for node in ast.walk(tree)
            if (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load))
            or (isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load))
        ]


@dataclass(frozen=True)
class Call:
    """A call in a statement of a file; `plain`: by the name alone."""

    path: str
    line: int
    statement: Statement = field(repr=False)
    plain: bool


def _calls(statement: Statement) -> Iterator[ast.Call]:
    """In the statement itself, without the blocks in it."""
    for child in ast.iter_child_nodes(statement.node):
        if not isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from (part for part in ast.walk(child) if isinstance(part, ast.Call))


def module_name(path: str) -> str:
    """The last name under which the file at `path` is imported: its own, or that of its package."""
    parts = path.removesuffix(".py").split("/")
    return parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]
