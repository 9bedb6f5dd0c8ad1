"""Values that a program takes no more, so that no run asks for them now.

Followed: lists in `choices=` of an option, `assert kind in [...]` and `if kind not in [...]: raise`, which the migration made
shorter.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.syntax import every, text
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.ways.formulas import Formula, conjunction

Listed = (ast.List, ast.Tuple, ast.Set)


def refused(changes: Iterable[Change]) -> Formula:
    """That nothing is what the program took before, and takes nowhere in the file any more."""
    gone = list[Formula]()
    for change in changes:
        before, after = _taken(change.before), _taken(change.after)
        for name, values in before.items():
            gone += [("not", f".{name} == {value}") for value in sorted(values - after.get(name, values))]
    return conjunction(gone)


def _taken(module: Module) -> dict[str | None, set[str]]:
    found: dict[str | None, set[str]] = defaultdict(set)
    for name, values in _lists(module):
        if isinstance(values, Listed):
            found[name] |= {text(v) for v in values.elts}
    return found


def _lists(module: Module) -> Iterator[tuple[str | None, ast.expr]]:
    asserted = [(node.test, ast.In) for node in every(module.tree, ast.Assert)]
    raised = [(node.test, ast.NotIn) for node in every(module.tree, ast.If) if isinstance(node.body[-1], ast.Raise)]
    for test, asks in (*asserted, *raised):
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], asks):
            yield last_name(test.left), test.comparators[0]
    for call in module.calls_named.get("add_argument", ()):
        flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        long = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
        for keyword in call.keywords:
            if keyword.arg == "choices" and long:
                yield long.lstrip("-").replace("-", "_"), keyword.value
