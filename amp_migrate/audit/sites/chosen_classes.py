"""Variables that hold a class where they are called: `kind = Deep if deep else Flat`, `return kind(config)`; parameters, fields."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.values.origins import Origin
from amp_migrate.audit.values.values import Values


def chosen_class(values: Values, module: Module, called: ast.expr) -> bool:
    """Whether all that a variable may have been given last, before it is called, are classes of the program or of torch; where
    that is not seen, all that it ever holds: what every caller gives a parameter."""
    if not isinstance(called, (ast.Name, ast.Attribute)):
        return False
    given = _before(module, module.statement(called), called.id) if isinstance(called, ast.Name) else []
    if not given and _may_be_object(values, module, called):
        return False
    scope = module.scope_of(called)
    held = [o for value in given or [called] for o in values.origins(scope, value)]
    return bool(held) and all(not o.path and (o.kind == "class" or _of_torch(values, o)) for o in held)


def _may_be_object(values: Values, module: Module, called: ast.expr) -> bool:
    """Whether a caller hands over its `self`, which is of a class and is none: `score(self, batches)`."""
    program = values.program
    function = module.function_around(called)
    if not isinstance(called, ast.Name) or function is None:
        return False
    if program.is_self(module.scope_of(called), called) is not None:
        return True
    filled = ((m, program.arguments(function, c) or {}) for m, c in program.callers(function))
    handed = ((m, given[called.id]) for m, given in filled if called.id in given)
    return any(program.is_self(m.scope_of(value), value) is not None for m, value in handed)


def _of_torch(values: Values, origin: Origin) -> bool:
    if origin.kind != "unknown" or not isinstance(origin.node, (ast.Name, ast.Attribute)):
        return False
    name = values.program.dotted(origin.module.scope_of(origin.node), origin.node) or ""
    return name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper()


def _before(module: Module, stmt: ast.stmt, name: str) -> list[ast.expr]:
    """What a name was given last before a statement of its function, by the statements above it; empty where that is not seen."""
    at: ast.AST = stmt
    while not isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
        parent = module.parents[at]
        for block in (getattr(parent, part, None) for part in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and at in block:
                if (found := _last(block[: block.index(at)], name)) is not None:
                    return found
        if isinstance(parent, (ast.For, ast.AsyncFor, ast.While)):
            return []  # what an earlier turn gave
        at = parent
    return []


def _last(block: Sequence[ast.stmt], name: str) -> list[ast.expr] | None:
    """What the statements of a block give a name last; None where they leave it alone, empty where that is not seen."""
    for stmt in reversed(block):
        if name not in {n.id for n in syntax.walk(stmt) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}:
            continue
        if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.value is not None:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            return [stmt.value] if any(isinstance(t, ast.Name) and t.id == name for t in targets) else []
        if isinstance(stmt, ast.If):
            branches = [_last(part, name) for part in (stmt.body, stmt.orelse)]
            return [v for b in branches for v in b or ()] if all(branches) else []
        return []
    return None
