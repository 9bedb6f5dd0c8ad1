"""Which ways are gone in one process: what a script sets is nothing to another one, nor to what loads neither of them."""

from __future__ import annotations

from amp_migrate.audit.program.near import near_in
from amp_migrate.audit.ways.chains import Chain, Chains, comes_after


def may_come_before(chains: Chains, first: Chain, chain: Chain) -> bool:
    """Whether a run that goes one way may have gone another before."""
    return comes_after(chain, first) is not False and not in_another_process(chains, first, chain)


def in_another_process(chains: Chains, first: Chain, chain: Chain) -> bool:
    """Whether no process that goes one way goes the other: two scripts, or one and what it does not load."""
    came = {step.node for step in chain.steps}
    if any(step.begins_process and step.node not in came for step in first.steps):
        return True
    start, other = chain.start, first.start
    if chain.open or (start.module is other.module and start.function is other.function):
        return False  # whoever calls it may have done anything before
    if first.command or (not first.open and chains.as_script(other)):
        return True
    if chains.as_script(start):
        return not chains.may_load(start, other.module)
    near = near_in(chains.program)
    return near.leading_to([start.module]).isdisjoint(near.leading_to([other.module]))
