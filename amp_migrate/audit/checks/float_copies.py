"""A copy that was made of a model before Apex was set up for that runs under autocast only where it is told.

O2 and O3 changed the model that they were given: a copy of its weights (`copy.deepcopy(model)` of an average) stayed float32.
Followed: which object a call runs, through attributes and conditions; not proved: copies by other means, and copies that are
not seen to be made before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    told: set[object] = set()
    for forward, model in both.forwards_before():
        place = both.now(forward.module, forward.call)
        function = forward.module.function_around(forward.call)
        if place is None or function in told or not (both.floats(forward.module) or both.asks(forward.module)):
            continue
        region = both.after.regions.nearest(*place)
        if region is None or region.off or not both.written(region) or not model & both.initialized:
            continue  # what can only be the copy, `precision` tells
        copies = [(i[0], i[-1]) for i in model - both.initialized if isinstance(i[0], ast.Call)]
        for call, module in copies:
            copied = isinstance(module, Module) and syntax.text(call.func).rpartition(".")[2] == "deepcopy"
            if copied and isinstance(module, Module) and both.made_before(module, call):
                told.add(function)
                asked = "" if both.floats(forward.module) else ", where they are asked for"
                at = f"line {call.lineno}" if module.path == place[0].path else f"{module.path}:{call.lineno}"
                message = (
                    f"{forward.text} may run the copy made at {at}, before amp.initialize: O2 and O3 left it in float32"
                    f"{asked}, and it runs under autocast here; open the region with enabled=False for it, to keep that"
                )
                yield both.review.doubt(*place, "AMP531", "a call of the model", message, "look", ("AMP531",))
                break
