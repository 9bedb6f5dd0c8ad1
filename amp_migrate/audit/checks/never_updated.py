"""A program that scales losses comes by an update of the scale, or is told that it never changes there.

Proved: of each script that comes to a `scaler.scale(...)` which is new, with the scaler enabled, one that comes to no
`update()` of a scaler at all. Cannot prove anything of functions that nothing in sight calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.checks.state import seen_scaler
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.review import Review
from amp_migrate.audit.ways.chains import MOST, Chain
from amp_migrate.audit.ways.formulas import conjunction, example
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP241",
        title="A scale that a program never changes",
        construct="amp.scale_loss",
        apex="Each scale_loss looks for an overflow as it ends, and halves the scale, also where nothing is stepped: gradients of "
        "inputs in an evaluation under attack.",
        native="The scale changes in update(), after unscale_ or step of an optimizer looked for an overflow.",
        why="A loss whose gradients overflow at the first scale overflows in every turn, and what reads them sees inf or nan.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update",),
    ),
)


def check(review: Review) -> Iterable[Doubt]:
    new = [
        (change.after, call, holder)
        for change in review.changes.values()
        for call, holder in change.after.method_calls("scale")
        if change.changed(call) and seen_scaler(review.values_after, change.after, holder)
    ]
    if not new:
        return
    both = mixed(review)
    updated: set[str] = set()
    for module in both.after.modules:
        for call, holder in module.method_calls("update"):
            if "scaler" in syntax.text(holder).lower() or seen_scaler(review.values_after, module, holder):
                ways = both.after.chains.to(module, call)
                if len(ways) >= MOST or any(way.open for way in ways):
                    return  # who comes there is not all in sight
                updated |= {way.start.module.path for way in ways}
    for module, call, holder in new:
        ways = both.after.chains.to(module, call)
        if len(ways) >= MOST or not updated:
            continue
        missed = [w for w in ways if not w.open and w.start.module.path not in updated and _on(both, w, holder)]
        if missed:
            paths = sorted({way.start.module.path for way in missed})
            message = (
                f"no run of {', '.join(paths)} comes by an update of the scale: Apex halved it after each overflow here, and it "
                "stays where it begins now; begin with one that fits, or leave the loss unscaled where nothing is stepped"
            )
            yield review.doubt(module, call, "AMP241", "amp.scale_loss", message, "review")


def _on(both: Mixed, way: Chain, holder: ast.expr) -> bool:
    """Whether a run that comes this way may have an enabled scaler."""
    predicates = both.after.predicates
    on = predicates.scaler_on(holder, predicates.places(way)[-1])
    return example(conjunction([predicates.given(way), on])) is not None
