"""A region that is on in every run stands where Apex was on in every run, also in functions that nothing in sight calls.

`precision.py` compares ways that are seen to come by the set-up. A library's functions are called by code out of sight, in
runs with and without it: told where each set-up of the program hangs on a flag, and the region written hangs on none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Function
from amp_migrate.audit.review import Review
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.ways.formulas import atoms, conjunction, disjunction, example, flags_told, minimal, negation
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP531: see `precision.py`


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    for change in review.changes.values():
        module = change.after
        if not both.near_setups(module):
            continue
        told: set[Function | None] = set()
        for forward, region, function in both.in_written_regions(module):
            always = region.enabled is None or isinstance(region.enabled, ast.Constant)
            if function is None or function in told or region.unseen or not always:
                continue
            if last_name(forward.model) not in both.network_names | both.start:
                continue
            where = _without(both, change, forward.call)
            if where:
                told.add(function)
                message = (
                    f"{forward.text} in {function.qualname} runs under autocast in every run now; Apex was not set up where "
                    f"{where}, and nothing in sight calls this only in other runs: it ran in float32 there. Give the region that "
                    "switch (enabled=)"
                )
                yield review.doubt(module, forward.call, "AMP531", "a call of the model", message, "review")


def _without(both: Mixed, change: Change, call: ast.Call) -> str:
    """The runs without Apex in which a function that nothing calls may be called; "" where there are none."""
    chains = both.after.chains.to(change.after, call)
    if not chains or not all(c.open for c in chains):
        return ""
    ons = both.on_near(change.after)
    joined = both.joined(change.before).get(call, ())
    for chain in chains:
        old = both.chain_before(chain)
        if old is None:
            return ""
        came = disjunction(both.before.predicates.given(o) for o in (old, *(old.ending(f.call) for f in joined)))
        missed = conjunction([came, negation(disjunction(ons))])
        found = example(missed) if ons else None
        if found is None:
            return ""
        if said := flags_told({a: v for a, v in minimal(missed, found).items() if a in atoms(disjunction(ons))}):
            return " and ".join(said)
    return ""
