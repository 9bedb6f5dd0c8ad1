"""Whether two scalers of one body ever scale in the same run: not where the program refuses the options for both."""

from __future__ import annotations

import ast

from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.review import Review
from amp_migrate.audit.stepping.machine import Place
from amp_migrate.audit.ways.formulas import Formula, conjunction, disjunction, impossible
from amp_migrate.audit.ways.refusals import both, refusals

_ACTS = ("scale", "unscale_", "step")


def never_two(review: Review, place: Place) -> bool:
    """Whether no run that comes to a place has two of the scalers on that are used in the body around it."""
    side = mixed(review).after
    module, around = place.module, place.module.function_around(place.node)
    used: dict[str, list[ast.Call]] = {}
    for name in _ACTS:
        for call, scaler in module.method_calls(name):
            if module.function_around(call) is around and "scaler" in syntax.text(scaler).lower():
                used.setdefault(syntax.text(scaler), []).append(call)
    chains = side.chains.to(module, place.node)
    if len(used) < 2 or not chains:
        return False
    for chain in chains:
        at = side.predicates.places(chain)[-1]
        on: list[Formula] = []
        for calls in used.values():
            assert isinstance(calls[0].func, ast.Attribute)
            come = disjunction(side.predicates.under(side.chains.tests(module, c), at) for c in calls)
            on.append(conjunction([side.predicates.scaler_on(calls[0].func.value, at), come]))
        known = conjunction([side.predicates.given(chain, stops=False), refusals(side).passed(chain)])
        if not impossible(conjunction([known, both(on)]), {}):
            return False
    return True
