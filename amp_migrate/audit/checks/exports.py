"""A trace or an export of a model that Apex ran in half is told, where no region is around it now: what it writes down changed.

Under O1 the casts stood in what was traced, under O2 and O3 the weights in it were half. Told of models that a set-up was
given, on ways that come by it. Not proved: what such a file is used for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.checks.precision import way
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import identities
from amp_migrate.audit.sites.tracers import traced
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP531: see `precision.py`
KEPT = ("torch.jit", "torch.onnx", "torch.export")  # whose result is what is wanted: no count of operations


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    for module in both.near if both.removed else ():
        for trace in traced(review.before, module):
            scope = module.scope_of(trace.call)
            whole = trace.model
            given = identities(review.values_before, scope, whole) & both.initialized
            while not given and isinstance(whole, ast.Attribute):  # `model.base`, a part
                whole = whole.value
                given = identities(review.values_before, scope, whole) & both.initialized
            name = review.before.dotted(scope, trace.call.func)
            place = both.now(module, trace.call)
            if not given or place is None or name is None or not name.startswith(KEPT):
                continue
            for chain in both.after.chains.to(*place):
                old = both.chain_before(chain)
                if old is None or both.under_apex(old, given).half is False or both.in_region(chain) is not False:
                    continue
                message = (
                    f"{syntax.text(trace.call.func)} runs {syntax.text(trace.model)}, which was in half precision under Apex: O1's "
                    f"casts, or O2's half weights, stood in what it writes down; {way(both, chain)}, no autocast region is around it "
                    "now, and all of that is float32. Trace a .half() copy on half inputs where half is wanted"
                )
                yield review.doubt(*place, "AMP531", "a call of the model", message, "look", ("AMP502",))
                break
