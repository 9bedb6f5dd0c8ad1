"""Which files of a project are started."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from amp_migrate.verify.commandline.files import Project, is_main

_NO_PROGRAMS = ("setup.py", "conftest.py", "noxfile.py", "hubconf.py")


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
