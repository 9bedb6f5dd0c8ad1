"""Which files of a project are started, and which files are part of what is started."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

_NO_PROGRAMS = ("setup.py", "conftest.py", "noxfile.py", "hubconf.py")


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


def entry_points(project: Project, called: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    """Files that run when they are started: with `if __name__ == "__main__"`, or `called` by some command."""
    found = []
    for path in project.files:
        place = PurePosixPath(path)
        if place.name in _NO_PROGRAMS or place.name.startswith("test_") or {"test", "tests"} & set(place.parts[:-1]):
            continue
        tree = project.tree(path)
        if tree is None:
            continue
        started = path in called or any(is_main(node) or _starts(node) for node in tree.body) or _parses(tree)
        if started or (_acts(tree) and path not in project.imported):
            found.append(path)
    return found


def is_main(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`"""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and "__name__" in ast.unparse(node.test)


def _starts(node: ast.stmt) -> bool:
    """Whether a function is run by its decorator: sacred's `@ex.automain`."""
    return isinstance(node, ast.FunctionDef) and any(ast.unparse(d).endswith(".automain") for d in node.decorator_list)


def _acts(tree: ast.Module) -> bool:
    """Whether the file itself, when it runs, does more than define."""
    blocks = (ast.For, ast.While, ast.With)
    return any(
        isinstance(node, blocks) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        for node in tree.body
    )


def _parses(tree: ast.Module) -> bool:
    """Whether the file itself, not a function of it, reads a command line."""
    own = [n for n in tree.body if not isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))]
    return any(
        isinstance(part, ast.Call) and getattr(part.func, "attr", "") in ("parse_args", "parse_known_args")
        for node in own for part in ast.walk(node)
    )  # fmt: skip


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
