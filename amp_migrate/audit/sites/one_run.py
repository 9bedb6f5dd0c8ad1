"""Whether one run may come by a place and by a set-up of Apex, in whichever order."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.program.module import Module
from amp_migrate.audit.ways.chains import Chain

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed


def in_one_run(both: Mixed, module: Module, node: ast.AST) -> bool:
    """Whether some run may come by a place of the program after and a set-up that went."""
    was = both.was(module, node)
    ways = both.before.chains.to(*was) if was is not None else ()
    others = [other for s in both.removed for other in both.before.chains.to(s.module, s.call)]
    return not ways or any(_leads(both, w, o) or _leads(both, o, w) for w in ways for o in others)


def _leads(both: Mixed, way: Chain, other: Chain) -> bool:
    """Whether a process that starts one way may come by another: what is not seen to start by itself, or what it loads."""
    if other.open or (way.start.module is other.start.module and way.start.function is other.start.function):
        return True
    loads = way.start.module in both.nearness.leading_to([other.start.module])
    return loads and not both.before.chains.as_script(other.start)
