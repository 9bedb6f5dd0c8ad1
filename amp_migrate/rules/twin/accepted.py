"""What a program accepts as its choice: where it checks that, it takes the value that chose Apex no more, and a run that asks
for it is refused, where it would train in float32.

`choices=["apex", "native"]` of argparse, `assert kind in [None, "apex", "native"]`, `if kind not in (...): raise`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.twin.sides import NativeTwin
from amp_migrate.reading.values.sources import Sources
from amp_migrate.rules.migration import Migration
from amp_migrate.writing.edits import joined

Listed = ast.List | ast.Tuple | ast.Set
BRACKETS: dict[type[Listed], str] = {ast.List: "[]", ast.Tuple: "()", ast.Set: "{}"}


def accept_no_more(m: Migration, twin: NativeTwin) -> str | None:
    """Take the value that chose Apex out of what the program accepts; the first place of that, None where it checks nothing."""
    found = checks(m, twin)
    for module, values in found:
        kept = [v for v in values.elts if not _is(v, {_value(b.test) for b in twin.branches})]
        comma = "," if isinstance(values, ast.Tuple) and len(kept) == 1 else ""
        m.edit(module).replace(
            values, (BRACKETS[type(values)][0], *joined(kept, ", "), comma + BRACKETS[type(values)][1])
        )
    return f"{found[0][0].display}:{found[0][1].lineno}" if found else None


def checks(m: Migration, twin: NativeTwin) -> list[tuple[Module, Listed]]:
    """The lists that what chose Apex must be in, beside other values."""
    chosen = (_chosen(branch.test) for branch in twin.branches)
    return list(dict.fromkeys(found for c in chosen if c is not None for found in _checks(m, twin, *c)))


def _chosen(test: ast.expr) -> tuple[ast.expr, str] | None:
    """What is compared, and with which text: `kind == "apex"`, `kind in ["apex"]`."""
    value = _value(test)
    return (test.left, value) if isinstance(test, ast.Compare) and value is not None else None


def _value(test: ast.expr) -> str | None:
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, (ast.Name, ast.Attribute)):
        return None
    (right,) = test.comparators
    if isinstance(test.ops[0], ast.In) and isinstance(right, Listed) and len(right.elts) == 1:
        (right,) = right.elts
    elif not isinstance(test.ops[0], ast.Eq):
        return None
    return right.value if isinstance(right, ast.Constant) and isinstance(right.value, str) else None


def _checks(m: Migration, twin: NativeTwin, holder: ast.expr, value: str) -> Iterator[tuple[Module, Listed]]:
    for module in twin.modules:
        asserted = [(n.test, ast.In) for n in module.of(ast.Assert)]
        raised = [(n.test, ast.NotIn) for n in module.of(ast.If) if isinstance(n.body[-1], ast.Raise)]
        for test, asks in (*asserted, *raised):
            if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], asks):
                if ast.unparse(test.left) == ast.unparse(holder) and _beside_others(test.comparators[0], value):
                    yield module, test.comparators[0]
    if isinstance(holder, ast.Attribute):
        options = [o for module in twin.modules for o in m.project.once(Sources).options(module, holder.attr)]
        for module, call in options:
            given = {k.arg: k.value for k in call.keywords}
            default = given.get("default")
            if "choices" in given and not (default is not None and _is(default, {value})):
                if _beside_others(given["choices"], value):
                    yield module, given["choices"]


def _beside_others(values: ast.expr, value: str) -> TypeGuard[Listed]:
    return isinstance(values, Listed) and len(values.elts) > 1 and any(_is(v, {value}) for v in values.elts)


def _is(node: ast.expr, values: set[str | None]) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in values
