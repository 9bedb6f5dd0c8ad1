"""What becomes of what a call prepares that hands an optimizer out: is it dropped, is it for inference, is it kept?"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.reading.units.unit import Init, Unit
from amp_migrate.reading.values.analysis import Values
from amp_migrate.reading.values.constants import NOTHING


def thrown_away(project: Project, init: Init, module: Module, stmt: ast.stmt, call: ast.Call) -> bool:
    """Whether nobody has what a call prepares: it makes the optimizer itself, and its result is dropped."""
    given = [*call.args, *(k.value for k in call.keywords)]
    slots = {s for value in given for s in project.sources(module, value)}
    prepared = {s for node in init.optimizers for s in project.sources(init.module, node)}
    return isinstance(stmt, ast.Expr) and stmt.value is call and slots.isdisjoint(project.origins(prepared))


def without_optimizer(project: Project, init: Init, function: Function, module: Module, call: ast.Call) -> bool:
    """Whether a call of the function that initializes passes None for its optimizer: it prepares inference."""
    values, scope = project.once(Values), init.site.scope
    names = [n.id for n in init.optimizers if isinstance(n, ast.Name)]
    made = [b for name in names for b in scope.bindings.get(name, []) if not isinstance(b, ast.arg)]
    return (
        bool(names)
        and function.scope is scope
        and all(init.module.statement(b) is init.stmt or getattr(b, "lineno", 0) > init.call.lineno for b in made)
        and all(values.given(function, module, call, name) == NOTHING for name in names)
    )


def stored_on_self(unit: Unit, module: Module, stmt: ast.stmt, scope: Scope) -> bool:
    """Whether what a call returns is put on `self`: by the statement itself, or below it in the same function."""
    if not isinstance(stmt, (ast.Assign, ast.AnnAssign)):
        return False
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
    if any(of_self(scope, n) for t in targets for n in walk(t)):
        return True
    names = identifiers(*targets)
    names &= {s.name for s in unit.optimizer_slots if s.holder is scope}
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Name)
        and node.value.id in names
        and node.lineno > stmt.lineno
        and any(of_self(scope, t) for t in node.targets)
        and module.scope_of(node) is scope
        for node in walk(scope.node)
    )


def of_self(scope: Scope, node: ast.AST) -> bool:
    """Whether a node is an attribute of the `self` of a method."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == scope.self_name


def set_anew(init: Init, others: Iterable[Init]) -> bool:
    """Whether a call without an optimizer, a teacher's, comes before one with: each sets all of Apex's scales up anew, so that
    the later one's is what counts."""
    block = init.module.block(init.stmt)
    after = block[block.index(init.stmt) + 1 :]
    return not init.optimizers and any(
        other.optimizers and other.module is init.module and init.module.inside_of(other.stmt, after)
        for other in others
    )
