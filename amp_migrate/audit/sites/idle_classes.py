"""Classes of which no program in sight makes an object, as a copied library has them: what their methods do comes to no run."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module

LOADING = frozenset({"__subclasses__", "getmembers", "import_module", "__import__"})
BY_NAME = frozenset({"__dict__", "getattr", "globals", "vars"}) | LOADING


def in_idle_class(near: Sequence[Module], module: Module, node: ast.AST) -> bool:
    """Whether a place stands in the method of a class that nothing names but its own code and that of other such classes, nor
    any text."""
    function = module.function_around(node)
    owner = function.owner if function is not None else None
    return owner is not None and _idle(near, owner, frozenset())


def _idle(near: Sequence[Module], cls: Class, seen: frozenset[Class]) -> bool:
    if cls in seen:
        return True
    if cls.node.decorator_list or any(_takes_by_name(module, cls) for module in near):
        return False
    inside = range(cls.node.lineno, (cls.node.end_lineno or cls.node.lineno) + 1)
    for module in near:
        if cls.name not in module.words:
            continue
        for node in ast.walk(module.tree):
            named = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None)
            if named != cls.name or (module.path == cls.module.path and getattr(node, "lineno", 0) in inside):
                continue
            around = _class_around(module, node)
            if around is None or not _idle(near, around, seen | {cls}):
                return False
    return True


def _takes_by_name(module: Module, cls: Class) -> bool:
    """Whether a file takes classes by names that it computes, of the file that one is in: `networks.__dict__[name]`."""
    if not BY_NAME & module.words:
        return False
    home = {*cls.module.name.split(".")}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Subscript) and syntax.last(node.value) == "__dict__":
            holder = node.value.value if isinstance(node.value, ast.Attribute) else None
        elif isinstance(node, ast.Call) and syntax.last(node.func) in BY_NAME:
            if syntax.last(node.func) == "globals":
                return module.path == cls.module.path
            holder = node.args[0] if node.args else None
            computed = len(node.args) > 1 and not isinstance(node.args[1], ast.Constant)
            if syntax.last(node.func) == "getattr" and not computed:
                continue
        else:
            continue
        if holder is not None and syntax.last(holder) in home and _imported(module, holder):
            return True
    return bool(module.words & LOADING)


def _imported(module: Module, holder: ast.expr) -> bool:
    """Whether what classes are taken of is an import: a variable may have the name of a package."""
    while isinstance(holder, ast.Attribute):
        holder = holder.value
    if not isinstance(holder, ast.Name):
        return True
    owner = module.scope_of(holder).binder(holder.id)
    return owner is None or any(isinstance(b, (ast.Import, ast.ImportFrom)) for b in owner.bindings[holder.id])


def _class_around(module: Module, node: ast.AST) -> Class | None:
    """The class in whose method a place stands, or of which it names a base."""
    function = module.function_around(node)
    stmt = module.parents.get(node)
    if function is None and isinstance(stmt, ast.ClassDef):
        return module.class_of.get(stmt)
    return function.owner if function is not None else None
