"""The set-ups that are compared with one way, of many: of functions that nothing in sight calls, which runs before which is
not known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amp_migrate.audit.program.module import Function
from amp_migrate.audit.sites.setups import Identity, SetUp
from amp_migrate.audit.ways.chains import Chain

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

FEW = 8  # set-ups that are compared with each way, wherever they stand


@dataclass(frozen=True)
class Starts:
    """The removed set-ups by where their ways start and by what they were given. `others`: those not all of whose ways start
    with functions that nothing in sight calls; `patching`: of the rest, those that may patch torch."""

    order: dict[SetUp, int]
    others: set[SetUp] = field(default_factory=set)
    patching: set[SetUp] = field(default_factory=set)
    by_key: dict[Function | Identity, list[SetUp]] = field(default_factory=dict)

    def near(self, chain: Chain, model: frozenset[Identity]) -> tuple[list[SetUp], bool]:
        """The set-ups whose ways are to be compared with a way, and whether no other one may come before it."""
        start = chain.start.function
        if not chain.open or start is None or start.owner is not None or len(self.order) < FEW:
            return [*self.order], True
        keys: list[Function | Identity] = [start, *model]
        near = {s for key in keys for s in self.by_key.get(key, ())} | self.others
        return sorted(near, key=self.order.__getitem__), self.patching <= near


def starts(both: Mixed) -> Starts:
    """Those of one migration."""
    found = Starts({s: n for n, s in enumerate(both.removed)})
    for setup in both.removed:
        ways = both.before.chains.to(setup.module, setup.call)
        apart = bool(ways) and all(way.open for way in ways)
        if not apart:
            found.others.add(setup)
        elif setup.patches:
            found.patching.add(setup)
        for key in (*(way.start.function for way in ways), *(both.models[setup] if apart else ())):
            if key is not None:
                found.by_key.setdefault(key, []).append(setup)
    return found
