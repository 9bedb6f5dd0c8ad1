"""A helper that runs the model for a training step stands in the step's own region, rather than taking a switch.

`outputs = run(model, batch)` and `loss = criterion(outputs)` are put in one region, as a person would: no parameter, nothing
that who else calls the helper has to leave out, and all that it computes runs as it did under Apex.

Native: https://pytorch.org/docs/stable/amp.html#torch.autocast
"""

from __future__ import annotations

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.regions.gathered import gathers
from amp_migrate.reading.scaler.threads import Thread
from amp_migrate.reading.units.legacy import is_legacy
from amp_migrate.reading.values.run_by_variables import calls_of
from amp_migrate.rules.migration import Migration

CODES: tuple[Code, ...] = ()  # told as AMP501: see `autocast.py`


def helpers(m: Migration) -> frozenset[Function]:
    """The functions that a migration hands the switch, or the scaler to ask whether it is on, and whose calls in a training
    step can stand in its region instead. Not at O2 and O3, where what a helper computes beside the model was float32."""
    if is_legacy(m.unit) or not all("O1" in init.levels for init in m.unit.inits):
        return frozenset()
    found = handed(m)
    handing = {module.scope_of(call) for threads in found.values() for t in threads for module, call in t.calls}
    acting = {x.site.scope for x in m.unit.losses} | {x.module.scope_of(x.call) for x in m.unit.steps}
    return frozenset(
        f for f in found if f.scope in m.output.regions and f.scope not in handing | acting and gathers(m.regions, f)
    )


def inner(m: Migration) -> frozenset[Function]:
    """The functions that have a region though a variable that is handed the model holds them, so that some who call them so have
    one around it: that is for nothing."""
    return frozenset(
        function
        for scope in m.output.regions
        if (function := m.project.functions.get(scope.node)) is not None
        for module, call in calls_of(m.project, function)
        if module.scope_of(call) in m.output.regions and m.regions.in_region(module, call)
    )


def loses(m: Migration, around: Migration, functions: frozenset[Function]) -> bool:
    """Whether one of such functions has no region any more, as it has `around`."""
    return any(f.scope in around.output.regions and f.scope not in m.output.regions for f in functions)


def misses(m: Migration, plain: Migration, gathered: frozenset[Function]) -> bool:
    """Whether some call of what was gathered has no region to stand in, as it has where `plain` gives each a switch."""
    return bool(gathered & handed(m).keys()) or _out_of_reach(m) > _out_of_reach(plain)


def _out_of_reach(m: Migration) -> int:
    """In how many places no switch could be seen."""
    return sum(f.code in ("AMP502", "AMP509") for findings in m.output.findings.values() for f in findings)


def handed(m: Migration) -> dict[Function, list[Thread]]:
    """The functions that a migration hands the scaler or the switch."""
    found: dict[Function, list[Thread]] = {}
    for plan in [*m.scalers, *m.switch.plans]:
        for function, thread in plan.threads.items():
            found.setdefault(function, []).append(thread)
    return found
