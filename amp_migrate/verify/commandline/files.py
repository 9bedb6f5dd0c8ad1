"""Which files are part of the process that a script starts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath


@dataclass
class Project:
    """The Python files of a folder, by their path in it."""

    root: Path
    _trees: dict[str, ast.Module | None] = field(default_factory=dict)

    @cached_property
    def files(self) -> list[str]:
        found = sorted(f for f in self.root.rglob("*.py") if f.is_file() and not f.is_symlink())
        return [file.relative_to(self.root).as_posix() for file in found]

    def tree(self, path: str) -> ast.Module | None:
        if path not in self._trees:
            try:
                self._trees[path] = ast.parse((self.root / path).read_bytes())
            except (OSError, SyntaxError, ValueError, RecursionError):
                self._trees[path] = None
        return self._trees[path]

    @cached_property
    def imported(self) -> set[str]:
        """The files that some other file imports."""
        return {file for path in self.files for file in self._imports(path) if file != path}

    def behind(self, script: str) -> list[str]:
        """The script and every file that it imports, directly or not, as far as its own folder and the project's hold them."""
        found, waiting = [script], [script]
        while waiting:
            for file in self._imports(waiting.pop(), script):
                if file not in found:
                    found.append(file)
                    waiting.append(file)
        return found

    def trees(self, script: str) -> list[ast.Module]:
        """The script and the files behind it, without what those do only where they are started themselves."""
        found = [(path, tree) for path in self.behind(script) if (tree := self.tree(path)) is not None]
        return [
            tree if path == script else ast.Module([node for node in tree.body if not is_main(node)], [])
            for path, tree in found
        ]

    def _imports(self, path: str, script: str | None = None) -> Iterator[str]:
        """The files that the file at `path` imports in a process that started with `script`, by default itself."""
        tree = self.tree(path)
        if tree is None:
            return
        roots = dict.fromkeys([PurePosixPath(script or path).parent, PurePosixPath("."), PurePosixPath("src")])
        for name in sorted(_imported(tree, path)):
            for root in [PurePosixPath(".")] if name.startswith("./") else roots:
                place = (root / name.removeprefix("./")).as_posix()
                yield from (f for f in (f"{place}.py", f"{place}/__init__.py") if f in self._known)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.files)


def is_main(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`"""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and "__name__" in ast.unparse(node.test)


def _imported(tree: ast.Module, path: str) -> set[str]:
    """Modules as paths without suffix; those that start with ./ are relative to the project."""
    names: set[str] = set()
    package = PurePosixPath(path).parent
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                names |= {"/".join(parts[: i + 1]) for i in range(len(parts))}
        elif isinstance(node, ast.ImportFrom):
            above = package
            for _ in range(max(0, node.level - 1)):
                above = above.parent
            parts = node.module.split(".") if node.module else []
            bases = ["/".join(parts[: i + 1]) for i in range(len(parts))]
            bases += ["/".join([*parts, alias.name]) for alias in node.names]
            names |= {f"./{(above / base).as_posix()}" for base in bases} if node.level else set(bases)
    return names
