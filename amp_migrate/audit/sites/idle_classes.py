"""Classes of which no program in sight makes an object, as a copied library has them: what their methods do comes to no run."""

from __future__ import annotations

import ast
import re

from amp_migrate.audit.kept import kept
from amp_migrate.audit.prepared import Prepared
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module

LOADING = frozenset({"__subclasses__", "getmembers", "import_module", "__import__"})
BY_NAME = frozenset({"__dict__", "getattr", "globals", "vars"}) | LOADING


def in_idle_class(both: Prepared, module: Module, node: ast.AST) -> bool:
    """Whether a place stands in the method of a class that nothing names but its own code and that of other such classes, nor
    any text."""
    function = module.function_around(node)
    owner = function.owner if function is not None else None
    return owner is not None and _idle(both, owner)


@kept
def _idle(both: Prepared, cls: Class) -> bool:
    found, waiting = {cls}, [cls]
    while waiting:
        naming = _naming(both, waiting.pop())
        if naming is None:
            return False
        waiting += naming - found
        found |= naming
    return True


@kept
def _naming(both: Prepared, cls: Class) -> set[Class] | None:
    """The other classes that name one in their methods, or as a base; None where something else does."""
    home = {*cls.module.name.split(".")}
    if cls.node.decorator_list:
        return None
    inside = range(cls.node.lineno, (cls.node.end_lineno or cls.node.lineno) + 1)
    quoted = re.compile(rf"[\"']{re.escape(cls.name)}[\"']")
    found: set[Class] = set()
    for module in both.after.modules:
        own = module.path == cls.module.path
        taken = _taken_by_name(module)
        if "*" in taken or taken & home or (own and "globals" in taken):
            return None
        if cls.name not in module.words:
            continue
        if quoted.search(module.text):
            return None
        for node in module.loads.get(cls.name, ()):
            if own and node.lineno in inside:
                continue
            around = _class_around(module, node)
            if around is None:
                return None
            found.add(around)
    return found


@kept
def _taken_by_name(module: Module) -> frozenset[str]:
    """The imports of which a file takes something by names that it computes, `networks.__dict__[name]`; "globals" for itself,
    and "*" for any."""
    if module.words & LOADING:
        return frozenset({"*"})
    found: set[str] = set()
    for node in syntax.walk(module.tree) if module.words & BY_NAME else ():
        holder: ast.expr | None = None
        if isinstance(node, ast.Subscript) and syntax.last(node.value) == "__dict__":
            holder = node.value.value if isinstance(node.value, ast.Attribute) else None
        elif isinstance(node, ast.Call) and syntax.last(node.func) in BY_NAME:
            named = syntax.last(node.func) == "getattr" and isinstance((*node.args, None, None)[1], ast.Constant)
            holder = node.args[0] if node.args and not named else None
            found |= {"globals"} if syntax.last(node.func) == "globals" else set()
        if holder is not None and _imported(module, holder):
            found.add(syntax.last(holder))
    return frozenset(found)


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
