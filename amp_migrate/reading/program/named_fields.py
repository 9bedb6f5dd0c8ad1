"""Fields that are read by names which are written down: `[getattr(self, name) for name in self.NAMES]`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk

if TYPE_CHECKING:
    from amp_migrate.reading.program.project import Project


def named_fields(project: Project, module: Module, call: ast.Call) -> Iterator[Slot]:
    """What a call of `getattr` may read, of an object whose class is seen."""
    families = dict.fromkeys(cls.family for cls in project.classes_of(module, call.args[0]))
    names = sorted(_texts(project, module, call.args[1])) if families else ()
    for family in families:
        yield from (Slot(family, name) for name in names)


def _texts(project: Project, module: Module, key: ast.expr) -> set[str]:
    """The texts that a name of a field may be."""
    if isinstance(key, ast.Constant):
        return {key.value} if isinstance(key.value, str) else set()
    if not isinstance(key, ast.Name):
        return set()
    for around in module.ancestors(key):
        turns = getattr(around, "generators", [around] if isinstance(around, (ast.For, ast.AsyncFor)) else ())
        for turn in turns:
            if isinstance(turn.target, ast.Name) and turn.target.id == key.id:
                return {t for written in _written(project, module, turn.iter) for t in _of(written)}
    return set()


def _written(project: Project, module: Module, names: ast.expr) -> list[ast.expr]:
    """The lists that an expression may be, where they are written."""
    if not isinstance(names, ast.Attribute):
        return [names]
    families = {cls.family for cls in project.classes_of(module, names.value)}
    owners = [cls for cls in project.classes.values() if cls.family in families]
    return [value for cls in owners for value in _given(cls, names.attr)]


def _given(cls: ClassInfo, field: str) -> Iterator[ast.expr]:
    """What a class gives a field, in its body or in its methods."""
    for node in (n for n in walk(cls.node) if isinstance(n, ast.Assign)):
        for target in node.targets:
            of_object = isinstance(target, ast.Attribute) and target.attr == field
            if of_object or (isinstance(target, ast.Name) and target.id == field and node in cls.node.body):
                yield node.value


def _of(names: ast.expr) -> set[str]:
    items = names.elts if isinstance(names, (ast.List, ast.Tuple, ast.Set)) else []
    return {i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)}
