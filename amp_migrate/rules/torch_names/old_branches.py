"""Deprecated names in branches for a torch older than their successors: they are right there, and stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from amp_migrate.reading.program.branches import branches_around
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.torch_versions import NAMES, TorchVersions
from amp_migrate.writing.edits import Edits

SUCCESSORS = frozenset(f"torch.{name}" for name in ("GradScaler", "amp.GradScaler", "autocast", "amp.autocast"))
VERSIONED = re.compile(r"torch\w*(?:version|_at_least|_(?:ge|gt|lt|le)_|_?\d)", re.IGNORECASE)
Asked = tuple[TorchVersions, dict[str, ast.expr]]

SINCE = NAMES["torch.amp"]


def for_old_torch(project: Project, module: Module, node: ast.AST) -> bool:
    """Whether only a torch older than any that runs what is written comes to a node."""
    return any(value is not taken for value, taken in _asked(project, module, node, _versions)) or any(
        _speaks_of_torch(b.test.test) and _has_successor(module, b.other) for b in branches_around(module, node)
    )


def _speaks_of_torch(test: ast.expr) -> bool:
    """Whether a test asks by its name for a version, `is_torch_at_least_2_3()`, whose answer is not in sight."""
    return bool(VERSIONED.search(ast.unparse(test)))


def _has_successor(module: Module, branch: Iterable[ast.AST]) -> bool:
    """Whether the branch beside one that is in question has a name of torch's that took the deprecated one's place."""
    names = (module.qualify(n) for o in branch for n in ast.walk(o) if isinstance(n, ast.Attribute | ast.Name))
    return any(name in SUCCESSORS for name in names)


def lets_older_in(project: Project, module: Module, node: ast.AST, edits: Edits, name: str) -> bool:
    """Whether a test of the version stands, and stays, around a node, and ones whose torch.amp has no such name pass it too."""
    asked = list(_asked(project, module, node, _BEFORE[name], edits))
    return bool(asked) and all(value is taken for value, taken in asked)


def _asked(
    project: Project, module: Module, node: ast.AST, read: Callable[..., Asked], edits: Edits | None = None
) -> Iterator[tuple[bool, bool]]:
    """What the tests of the version around a node come to, but for those that go, and which branch it stands in."""
    asks = "version" in module.text.lower() or "hasattr" in module.text
    for test, taken, outer in _around(module, node, above=edits is None) if asks else ():
        if edits is None or not (outer in edits.statements or outer in edits.expressions):
            versions, constants = project.once(read, module)
            value = versions.comes_to(test, constants)
            if value is not None:
                yield value, taken


def _around(module: Module, node: ast.AST, *, above: bool) -> Iterator[tuple[ast.expr, bool, ast.AST]]:
    """The tests that a run has passed by when it comes to a node, what they came to, and where they stand: those around it;
    `above`: those above it that leave, too."""
    yield from ((b.test.test, b.holds, b.test) for b in branches_around(module, node))
    for stmt in (a for a in (node, *module.ancestors(node)) if above and isinstance(a, ast.stmt)):
        block = module.block(stmt)
        for earlier in block[: block.index(stmt)]:
            if isinstance(earlier, ast.If) and isinstance(earlier.body[-1], (ast.Return, ast.Raise, ast.Continue)):
                yield earlier.test, False, earlier


def _versions(project: Project, module: Module) -> Asked:
    """What the file asks of torch's version; the constants it imports that hold that."""
    constants: dict[str, ast.expr] = {}
    for name, target in module.root.imports.items():
        if name.isupper() and target.rpartition(".")[2] == name:
            values = [
                stmt.value
                for other in project.modules
                for bound in other.root.bindings.get(name, ())
                if isinstance(stmt := other.parents.get(bound), ast.Assign)
            ]
            if values and all(ast.unparse(v) == "torch.__version__" for v in values):
                constants[name] = values[0]
    return TorchVersions(module.tree), constants


def _versions_before(project: Project, module: Module, *, name: object) -> Asked:
    """The same of the last torch whose torch.amp has no such name."""
    major, minor = SINCE[name]
    return TorchVersions(module.tree, (major, minor - 1)), project.once(_versions, module)[1]


_BEFORE = {name: partial(_versions_before, name=name) for name in SINCE}
