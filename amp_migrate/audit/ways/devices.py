"""Which type a device has, `device.type == "cuda"`: by the tests under which each of those is made that a variable may hold."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.ways.formulas import Formula, conjunction, disjunction, negation
from amp_migrate.audit.ways.trails import Place

if TYPE_CHECKING:
    from amp_migrate.audit.ways.predicates import Predicates


def of_type(predicates: Predicates, asked: ast.expr, kind: ast.expr, place: Place, depth: int) -> Formula | None:
    """When a device has a type; None where it is no device that is made in sight, or none of both is asked about."""
    if not isinstance(asked, ast.Attribute) or asked.attr != "type" or not isinstance(kind, ast.Constant):
        return None
    device, there = predicates.trails.end(asked.value, place)
    origins = predicates.values.origins(there.scope, device)
    on: list[Formula] = []
    for origin in origins:
        scope, call = origin.module.scope_of(origin.node), origin.node
        if not isinstance(call, ast.Call) or predicates.program.dotted(scope, call.func) != "torch.device":
            return None
        name = call.args[0] if call.args else None
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            return None
        if name.value.partition(":")[0] != kind.value:
            continue
        tests = predicates.chains.tests(origin.module, call)
        inside = predicates.trails.anywhere(scope)
        chosen = origin.module.parents.get(call)
        under = [predicates.under(tests, inside, depth + 1)]
        if (
            isinstance(chosen, ast.IfExp)
            and call is not chosen.test
            and (chosen.test, call is chosen.body) not in tests
        ):
            test = predicates.of(chosen.test, inside, depth + 1)
            under.append(test if call is chosen.body else negation(test))
        on.append(conjunction(under))
    if len(on) == len(origins):
        return True if on else None
    return disjunction(on)
