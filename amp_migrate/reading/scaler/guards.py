"""What the conditions around a place ask, and whether what is created under them can be used elsewhere."""

from __future__ import annotations

import ast

from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.module import LOOP_NODES, Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers, walk


def within(module: Module, node: ast.AST, scope: Scope) -> bool:
    """Whether a node stands in a function scope or one nested in it; for a module scope, directly in it."""
    inner = module.scope_of(node)
    if scope.is_module:
        return inner.module is scope.module
    return scope in list(inner.chain())


def under(module: Module, node: ast.AST, parent: ast.AST) -> bool:
    return node is parent or any(a is parent for a in module.ancestors(node))


def is_main_guard(node: ast.If) -> bool:
    return "__name__" in ast.unparse(node.test)


def runs_once(node: ast.If) -> bool:
    """`if not self.initialized:` around a body that sets it: run once, must stay."""
    test = node.test
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    subject = test.operand if negated and isinstance(test, ast.UnaryOp) else None
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        subject = test.left
    if subject is None:
        return False
    text = ast.unparse(subject)
    return any(
        isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store) and ast.unparse(n) == text
        for s in node.body
        for n in walk(s)
    )


def turns(module: Module, scope: Scope, node: ast.If) -> bool:
    """Whether a condition is another one in each turn of a loop around it, `if epoch == first:`: what is created under it
    in one turn is used in the others, where it does not hold."""
    loop = next((a for a in module.ancestors(node) if isinstance(a, LOOP_NODES)), None)
    if loop is None:
        return False
    names = identifiers(node.test)
    bound = (b for name in names for b in scope.bindings.get(name, ()))
    return any(b is loop or loop in set(module.ancestors(b)) for b in bound)


def only_asks_for_apex(project: Project, module: Module, parent: ast.stmt) -> bool:
    """An `if` that only asks whether Apex is installed: it goes, so creation need not stay inside."""
    return isinstance(parent, ast.If) and availability(project, module).value(parent.test) is not None
