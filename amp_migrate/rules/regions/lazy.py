"""Forwards that only run once their result is asked for, in a region that is left by then."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.regions.spans import Region, statements
from amp_migrate.rules.migration import Migration


def tell(m: Migration, module: Module, region: Region) -> None:
    """A forward that only runs once its result is asked for, `outputs = map(lambda x: model(x), batch)`, runs in the region
    if a list is made of it; where it cannot be, that is said."""
    for stmt in statements(m.regions.view(module.scope_of(region.first)), region):
        value = stmt.value if isinstance(stmt, (ast.Assign, ast.Return)) else None
        named = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "map"
        if value is None or not (named or isinstance(value, ast.GeneratorExp)):
            continue
        if not any(m.regions.is_forward(module, n) for n in walk(value)):
            continue
        if named and isinstance(stmt, ast.Assign) and _only_iterated(module, stmt):
            m.edit(module).insert("before", value, "list(")
            m.edit(module).insert("after", value, ")")
        else:
            m.output.note(
                module,
                value,
                "AMP502",
                "torch.autocast",
                "the model runs where the result of this is consumed, outside the region: make a list of it",
                "review",
            )


def _only_iterated(module: Module, stmt: ast.Assign) -> bool:
    """Whether a name that is given an iterator is never asked for its next value: a list does as well."""
    target, scope = stmt.targets[0], module.scope_of(stmt)
    if len(stmt.targets) > 1 or not isinstance(target, ast.Name) or not scope.is_function:
        return False
    uses = [n for n in module.loads.get(target.id, ()) if scope in set(module.scope_of(n).chain())]
    parents = [module.parents[n] for n in uses]
    return not any(
        isinstance(p, ast.Attribute) or (isinstance(p, ast.Call) and ast.unparse(p.func) in ("next", "iter"))
        for p in parents
    )
