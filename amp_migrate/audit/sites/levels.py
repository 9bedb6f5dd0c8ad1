"""Who asks which opt level it is, and what that comes out as at some levels."""

from __future__ import annotations

import ast
from collections.abc import Collection

from amp_migrate.audit.mixed import Mixed
from amp_migrate.audit.sites.setups import INITIALIZE, LEVELS, asked_level


def level_names(both: Mixed) -> frozenset[str]:
    """What the levels of the removed set-ups are read from: options, keys, variables that say so."""
    found: set[str] = set()
    for setup in both.removed:
        level = asked_level(both.before.values, setup.module, setup.call) if setup.name == INITIALIZE else None
        if level is None or isinstance(level, ast.Constant):
            continue
        nodes = [level, *(o.node for o in both.before.values.of(setup.module, level))]
        names = {_field(n) for n in nodes if isinstance(n, ast.expr)}
        said = [n for n in names if n is not None]
        found.update(n for n in said if not isinstance(level, ast.Name) or "level" in n.lower() or "opt" in n.lower())
    return frozenset(found)


def _field(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    return node.id if isinstance(node, ast.Name) else None


def truth(test: ast.expr, names: Collection[str], level: str) -> bool | None:
    """How a test comes out at a level; None where it asks something else as well that decides."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = truth(test.operand, names, level)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = [truth(v, names, level) for v in test.values]
        decides = isinstance(test.op, ast.Or)
        return decides if decides in parts else None if None in parts else not decides
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or _field(test.left) not in names:
        return None
    op, side = test.ops[0], test.comparators[0]
    if isinstance(op, (ast.Eq, ast.NotEq)) and isinstance(side, ast.Constant) and side.value in LEVELS:
        return (side.value == level) is isinstance(op, ast.Eq)
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(side, (ast.List, ast.Tuple, ast.Set)):
        among = [e.value for e in side.elts if isinstance(e, ast.Constant)]
        return (level in among) is isinstance(op, ast.In)
    return None
