"""An object whose constructor may leave above `initialize` has a scaler that does nothing by then, where an evaluation asks it.

Apex's state was process-wide: an object that set nothing up could be evaluated as any other.
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.lookup import is_super
from amp_migrate.reading.program.module import Scope
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
                if home.kind == "self" and home.scope.name == "__init__":
                    _derived(m, home, plan.target(home).partition(".")[2])


def before_leaving(m: Migration, home: Home, line: str) -> None:
    """Put a line above the first test under which a constructor is left before the place of a home: `if mode == "test": return`."""
    if home.kind == "self" and home.scope.name == "__init__":
        left = _left_above(home.scope, home.above or home.anchor)
        if left is not None:
            m.edit(home.scope.module).insert_before(left, line)


def _derived(m: Migration, home: Home, name: str) -> None:
    """The same for constructors of classes derived from that of a home which are left above `super().__init__()`."""
    own = m.project.class_of(home.scope)
    for cls in own.descendants() if own is not None else ():
        init = cls.methods.get("__init__")
        if cls is own or init is None or cls.module not in m.project.targets:
            continue
        of_base = (n for n in init.inside if isinstance(n, ast.Call) and called_name(n) == "__init__")
        above = next((n for n in of_base if isinstance(n.func, ast.Attribute) and is_super(n.func.value)), None)
        left = _left_above(init.scope, cls.module.statement(above)) if above is not None else None
        if left is not None:
            line = f"{init.scope.self_name}.{name} = {m.scaler_off(cls.module, init.scope)}"
            m.edit(cls.module).insert_before(left, line)


def _left_above(scope: Scope, first: ast.stmt) -> ast.stmt | None:
    """The first statement of a constructor under which it is left before another one is come to."""
    body = getattr(scope.node, "body", [])
    outer = next((s for s in (first, *scope.module.ancestors(first)) if s in body), None)
    up_to = body[: body.index(outer) + 1] if outer is not None else []
    return next((s for s in up_to if any(_leaves(n, first) for n in own_nodes([s]))), None)


def _leaves(node: ast.AST, first: ast.stmt) -> bool:
    return isinstance(node, ast.Return) and node.lineno < first.lineno
