"""Forwards that take a region along, wherever they are called: one that a network opens itself, or that was put on its forward."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.program.module import Module
from amp_migrate.audit.sites.float_methods import casts_apart
from amp_migrate.audit.sites.forwards import Forward

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed


def takes_region(both: Mixed, module: Module, node: ast.AST) -> bool:
    """Whether a call of the program after runs what has a region of its own, or may have one."""
    if not isinstance(node, ast.Call):
        return False
    forward = both.after.forwards.at(module, node)
    if forward is None:
        return runs_wrapped(both, (module, node))
    side = both.after
    return side.wrapped(forward) is not None or side.may_be_wrapped(forward) or has_own_region(both, forward)


def has_own_region(both: Mixed, forward: Forward) -> bool:
    """Whether a method of the network trains it (`model.fit(loader)`) or has regions itself, or what it runs has them around all
    that it computes in half: what is in these is compared there."""
    runs = both.after.forwards.runs(forward) if forward.method is not None else []
    apart = (both.after.own_calls.trains(f) or "autocast" in f.module.source(f.node) for f in runs)
    return (bool(runs) and all(apart)) or casts_apart(both, forward)


def runs_wrapped(both: Mixed, place: tuple[Module, ast.Call]) -> bool:
    """Whether a method of a network runs a forward that was wrapped on its object, `self.forward(x)` or `self(x)`, as far as it is
    seen of what class that is."""
    function = place[0].function_around(place[1])
    family = set(both.review.after.family(function.owner)) if function is not None and function.owner else set()
    for module, attribute, region in both.after.regions.wrapped:
        if attribute.attr == "forward":
            forwards = both.after.forwards
            wrapped = forwards.made_of(forwards.identities(Forward(module, region.call, attribute.value, None)))
            if not wrapped or not family.isdisjoint(wrapped):
                return True
    return False
