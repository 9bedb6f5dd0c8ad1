"""Places that only runs come to which never set Apex up: what a program with mixed precision of its own computes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.ways.chains import Chain
from amp_migrate.audit.ways.formulas import conjunction, disjunction, example

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed


@kept
def never_mixed(both: Mixed, module: Module, node: ast.AST) -> bool:
    """Whether no run that has set Apex up may come to a place of the program after, and none loads a file in which the
    migration wrote a region: what is computed there is what was."""
    ways = both.after.chains.to(module, node)
    if any(_new_regions(both, m) for m in {module, *(w.start.module for w in ways)}):
        return False
    before = [old for way in ways if (old := both.chain_before(way)) is not None]
    if len(before) < len(ways) or not all(_never_set_up(both, old) for old in before):
        return False
    return bool(ways) or not both.near_setups(module)


@kept
def never_on(both: Mixed, module: Module, call: ast.AST) -> bool:
    """Whether the region around a forward of the program after is off in every run that comes to it: a branch of a function that
    takes the switch, which only calls take that leave it out."""
    if both.after.regions.nearest(module, call) is None:
        return False
    ways = both.after.chains.to(module, call)
    return bool(ways) and all(
        both.after.chains.certain(way)
        and example(conjunction([both.after.predicates.given(way), both.in_region(way)])) is None
        for way in ways
    )


@kept
def _new_regions(both: Mixed, start: Module) -> bool:
    """Whether the migration wrote a region around a model in a file of the programs that a file (of the program after) is
    part of."""
    files = both.nearness.files([both.review.before.modules[start.path]])
    return any(next(both.in_written_regions(both.review.after.modules[m.path]), None) for m in files)


@kept
def _never_set_up(both: Mixed, chain: Chain) -> bool:
    """Whether no set-up may come before a way of the program before."""
    near = both.near_setups(chain.start.module)
    for setup in both.removed:
        ways = both.before.chains.to(setup.module, setup.call)
        told = [both.follows(way, chain, False) for way in ways]
        if setup in near and (None in told or not ways):
            return False
        on = [both.on(setup, way) for way, follows in zip(ways, told, strict=True) if follows]
        if both.before.possible(chain, disjunction(on)):
            return False
    return True
