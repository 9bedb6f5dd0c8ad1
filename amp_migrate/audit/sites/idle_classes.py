"""Classes of which no program in sight makes an object, as a copied library has them: what their methods do comes to no run."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.audit.program.module import Class, Module


def in_idle_class(near: Sequence[Module], module: Module, node: ast.AST) -> bool:
    """Whether a place stands in the method of a class that nothing names but its own code and that of other such classes, nor
    any text."""
    function = module.function_around(node)
    owner = function.owner if function is not None else None
    return owner is not None and _idle(near, owner, frozenset())


def _idle(near: Sequence[Module], cls: Class, seen: frozenset[Class]) -> bool:
    if cls in seen:
        return True
    inside = range(cls.node.lineno, (cls.node.end_lineno or cls.node.lineno) + 1)
    for module in near:
        if cls.name not in module.words:
            continue
        for node in ast.walk(module.tree):
            named = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None)
            if named != cls.name or (module.path == cls.module.path and node.lineno in inside):  # type: ignore[attr-defined]
                continue
            around = _class_around(module, node)
            if around is None or not _idle(near, around, seen | {cls}):
                return False
    return True


def _class_around(module: Module, node: ast.AST) -> Class | None:
    """The class in whose method a place stands, or of which it names a base."""
    function = module.function_around(node)
    stmt = module.parents.get(node)
    if function is None and isinstance(stmt, ast.ClassDef):
        return module.class_of.get(stmt)
    return function.owner if function is not None else None
