"""An object whose constructor may leave above `initialize` has a scaler that does nothing by then, where an evaluation asks it.

Apex's state was process-wide: an object that set nothing up could be evaluated as any other.
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.tree import own_nodes
from amp_migrate.reading.scaler.home import Home
from amp_migrate.rules.migration import Migration

CODES: tuple[Code, ...] = ()


def apply(m: Migration) -> None:
    """Create it before the test under which the constructor is left."""
    asking = [header for scope, header in m.output.regions.items() if scope not in m.output.training]
    for plan in m.scalers if m.scales else ():
        for home in plan.created:
            asked = f".{plan.target(home).rpartition('.')[2]}.is_enabled()"
            if any(asked in header for header in asking):
                module = home.scope.module
                before_leaving(m, home, f"{plan.target(home)} = {m.scaler_off(module, home.scope)}")


def before_leaving(m: Migration, home: Home, line: str) -> None:
    """Put a line above the first test under which a constructor is left before the place of a home: `if mode == "test": return`."""
    module, body = home.scope.module, getattr(home.scope.node, "body", [])
    first = home.above or home.anchor
    outer = next((s for s in (first, *module.ancestors(first)) if s in body), None)
    if home.kind != "self" or home.scope.name != "__init__" or outer is None:
        return
    left = next((s for s in body[: body.index(outer) + 1] if any(_leaves(n, first) for n in own_nodes([s]))), None)
    if left is not None:
        m.edit(module).insert_before(left, line)


def _leaves(node: ast.AST, first: ast.stmt) -> bool:
    return isinstance(node, ast.Return) and node.lineno < first.lineno
