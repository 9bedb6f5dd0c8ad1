"""Whether a value goes nowhere: into a tensor of a function that nothing reads."""

from __future__ import annotations

import ast

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope


def goes_nowhere(module: Module, node: ast.AST) -> bool:
    """Whether a node only makes what is put into elements of a tensor that its function makes, and that nothing reads."""
    stmt = module.statement(node)
    if not isinstance(stmt, ast.Assign) or module.function_around(stmt) is None:
        return False
    return all(isinstance(t, ast.Subscript) and _unread(module, module.scope_of(stmt), t.value) for t in stmt.targets)


def _unread(module: Module, scope: Scope, tensor: ast.expr) -> bool:
    if not isinstance(tensor, ast.Name) or scope.binder(tensor.id) is not scope:
        return False
    made = [b.value if isinstance(b, ast.Assign) else None for b in scope.bindings[tensor.id]]
    if not all(isinstance(v, ast.Call) and syntax.text(v.func).startswith("torch.") for v in made):
        return False  # it may be another name for what is read elsewhere
    reads = (n for n in module.loads.get(tensor.id, ()) if isinstance(n, ast.Name))
    own = ((n, module.parents.get(n)) for n in reads if module.scope_of(n).binder(tensor.id) is scope)
    return all(isinstance(at, ast.Subscript) and at.value is n and isinstance(at.ctx, ast.Store) for n, at in own)
