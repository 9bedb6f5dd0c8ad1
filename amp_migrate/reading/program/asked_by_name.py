"""What of a file is asked for by its name: `getattr(losses, "Focal")`, `getattr(solvers, args.model + "Solver")`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.reading.program.module import LOOP_NODES, Module
from amp_migrate.reading.program.tree import names_stored

if TYPE_CHECKING:
    from amp_migrate.reading.program.lookup import Lookup


def asked_by_name(names: Lookup, module: Module, asked: ast.Call) -> list[ast.AST]:
    """What a file defines under a name in quotes; of a name that is put together, the classes that one is chosen of."""
    if not isinstance(asked.func, ast.Name) or asked.func.id != "getattr" or len(asked.args) < 2:
        return []
    held, name = _file(names, module, asked.args[0]), asked.args[1]
    if held is None:
        return []
    if isinstance(name, ast.Constant):
        return [n for n in held.root.bindings.get(str(name.value), ()) if n in names.classes or n in names.functions]
    start, end = "", ""
    if isinstance(name, ast.BinOp) and isinstance(name.op, ast.Add):
        start, end = (str(n.value) if isinstance(n, ast.Constant) else "" for n in (name.left, name.right))
    classes = (n for nodes in held.root.bindings.values() for n in nodes if n in names.classes)
    return [c for c in classes if names.classes[c].name.startswith(start) and names.classes[c].name.endswith(end)]


def _file(names: Lookup, module: Module, expr: ast.expr) -> Module | None:
    """The file that an expression stands for: one that is imported, also by `import_module("losses.focal")`, by itself or as
    what a variable was given last."""
    if not isinstance(expr, (ast.Name, ast.Attribute, ast.Call)):
        return None
    name = module.taken(expr)
    if name is None and isinstance(expr, ast.Name):
        given = _given_above(module, expr)
        name = module.taken(given) if isinstance(given, ast.Call) else None
    return names.module_named(name) if name is not None else None


def _given_above(module: Module, name: ast.Name) -> ast.expr | None:
    """The value that a variable has on every way to a place; None where that is not seen at once: some statement above may give
    it another."""
    own = module.statement(name)
    for stmt, above in module.above(name, module.scopes):
        if isinstance(stmt, LOOP_NODES) and stmt is not own and name.id in names_stored(stmt):
            return None
        for other in reversed(above):
            if isinstance(other, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == name.id for t in other.targets
            ):
                return other.value
            if name.id in names_stored(other):
                return None
    return None
