"""Networks that no set-up was given, in regions that the migration wrote: under O2 and O3 they ran in float32."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.sites.networks import (
    KEEPERS,
    is_given,
    is_network,
    run_by_method,
    runs_unseen,
)
from amp_migrate.audit.sites.pieces import idle
from amp_migrate.audit.sites.within import made_at
from amp_migrate.audit.sites.writers import without_gradients
from amp_migrate.audit.values.names import is_option, last_name

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed


def taken_in(both: Mixed) -> Iterator[tuple[Module, ast.Call, str]]:
    """Calls, after, that run another network in a region that the migration wrote; how that is called."""
    forwards = both.after.forwards
    for change in both.review.changes.values():
        module = change.after
        if "autocast" not in module.text:
            continue
        names = both.network_names | _annotated(module)
        for call in module.calls():
            region = both.after.regions.nearest(module, call)
            if region is None or region.off or not both.written(region):
                continue
            own = forwards.at(module, call)
            by_name = names if own is not None and own.method is None else set[str]()
            if own is not None and (last_name(own.model) in by_name | _known(both, own) or _seen_network(both, own)):
                if not forwards.no_network(own) and not is_given(both, module, own.model):
                    yield module, call, syntax.text(own.model)
            if call not in both.running and not both.review.after.callees(module, call):
                continue
            for value in syntax.given(call):
                if isinstance(value, (ast.Name, ast.Attribute)) and last_name(value) in names and not is_option(value):
                    if "optim" in (last_name(value) or "").lower():
                        continue  # has a state as a network has, and is handed to what computes a loss
                    if not is_given(both, module, value):
                        yield module, call, syntax.text(value)


def _around_given(both: Mixed, forward: Forward) -> bool:
    """Whether a network is made around one that a set-up was given: `KD(student, teacher)`."""
    made = {made_at(i, both) for i in both.after.forwards.identities(forward)} - {None}
    return not made.isdisjoint(made_at(i) for i in both.around)


def _known(both: Mixed, forward: Forward) -> set[str]:
    """The names under which what is run is a network where a method of it is called, or no gradients are made."""
    if forward.method is None:
        runs = without_gradients(both.review.after, forward.module, forward.call)
    else:
        runs = runs_unseen(both, forward)
    return run_by_method(forward.module) if runs else set()


def _seen_network(both: Mixed, forward: Forward) -> bool:
    """Whether what is called, after, is seen to be made as a network, and no loss, under whatever name."""
    forwards, program = both.after.forwards, both.review.after
    name = last_name(forward.model) or ""
    classes = forwards.made_of(forwards.identities(forward)) if forward.method is None else []
    if not classes or KEEPERS.search(name) or any(KEEPERS.search(c.name) for c in classes):
        return False
    seen = all(is_network(program, c) for c in classes) and not idle(forwards, forward)
    return seen and not _around_given(both, forward)


@kept
def _annotated(module: Module) -> set[str]:
    """The parameters of which it is written that they are a network: `teacher: nn.Module`."""
    given = (p for f in module.functions for p in f.parameters)
    noted = (p.arg for p in given if p.annotation is not None and last_name(p.annotation) == "Module")
    return {name for name in noted if not KEEPERS.search(name)}
