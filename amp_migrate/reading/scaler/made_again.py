"""Scalers that nothing would ask before another takes their place: of a frozen teacher that is set up first."""

from __future__ import annotations

import ast
from collections.abc import Collection

from amp_migrate.reading.program.module import LOOP_NODES, Scope
from amp_migrate.reading.program.tree import reached, walk
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home


def made_again(plan: ScalerPlan, home: Home, other: Home, acting: Collection[Scope]) -> bool:
    """Whether a set-up without an optimizer would make a scaler that each run makes again further down in the function, by
    another set-up, and that nothing reads in between. `acting`: what runs a model, scales or steps."""
    module, scope = home.scope.module, home.scope
    if home.init.optimizers or home.kind != other.kind or scope is not other.scope or home.carrier != other.carrier:
        return False
    above = [home.anchor, *module.ancestors(home.anchor)]
    below = module.block(other.anchor)
    if other.idle or other.stays or other.above is not None or other.anchor.lineno <= home.anchor.lineno:
        return False
    first = next((s for s in below[: below.index(other.anchor)] if s in above), None)
    if first is None or any(isinstance(a, LOOP_NODES) for a in module.ancestors(other.anchor)):
        return False
    between = range(first.lineno, other.anchor.lineno)
    if any(isinstance(n, ast.Return) and n.lineno in between for n in walk(scope.node)):
        return False
    project = plan.project
    calls = (c for c, where in module.calls if where is scope and c.lineno in between)
    run = reached(
        (f for call in calls for f in project.resolved.get(call, ())),
        lambda f: [g for n in f.inside if isinstance(n, ast.Call) for g in project.resolved.get(n, ())],
    )
    return not any(s in acting for s in (scope, *(f.scope for f in run)))
