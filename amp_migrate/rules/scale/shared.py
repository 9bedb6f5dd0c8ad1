"""One scaler for several losses, of which Apex had one for each `loss_id`.

Apex: https://nvidia.github.io/apex/advanced.html#multiple-models-optimizers-losses
Native: https://pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.units.unit import Loss
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP205",
        "Several losses share one scaler",
        "amp.scale_loss",
        apex="loss_id picks one of num_losses scalers.",
        native="One scaler serves all losses of an optimizer; two would give wrong gradients where they share parameters.",
        why="An overflow in one loss now lowers the scale of the others too, and the scale grows by the updates, whichever loss "
        "they follow.",
        links=(
            "https://pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers",
        ),
    ),
)


def apply(m: Migration) -> None:
    """Say so of each loss that names its scaler."""
    if not m.scales or len(m.scalers) != 1:
        return
    live = [x for x in m.unit.losses if m.live(x.module, x.with_stmt)]
    if all(isinstance(loss_id(x), ast.Constant) and same_scaler(x, live[0]) for x in live):
        return  # however many Apex was told to expect
    losses = [x for x in live if loss_id(x) is not None]
    once = _updated_once(m, losses)
    grows = (
        "begins the count towards its growth anew, where Apex counted the backwards of each apart"
        if once
        else "every update counts towards its growth, whichever loss it follows, where Apex counted the backwards of each apart"
    )
    lowers = f"lowers the scale of the others too{'' if once else ','} and {grows}"
    for loss in losses:
        message = f"all losses share one scaler: an overflow in one {lowers}"
        m.output.note(loss.module, loss.call, "AMP205", "amp.scale_loss", message)


def loss_id(loss: Loss) -> ast.expr | None:
    """The scaler that a loss names."""
    return loss.site.argument(2, "loss_id")


def _updated_once(m: Migration, losses: list[Loss]) -> bool:
    """Whether one update follows all the losses, each of which has a scaler of its own under Apex: it counts as each of them
    did."""
    updates = [(scope, stmt) for scope, stmts in m.updates.items() for stmt in stmts]
    scopes = {x.module.scope_of(x.with_stmt) for x in losses}
    written = all(isinstance(loss_id(x), ast.Constant) for x in losses)
    return written and len(updates) == 1 and scopes == {updates[0][0]}


def same_scaler(one: Loss, other: Loss) -> bool:
    """Whether Apex may have scaled two losses by one scaler: by the first where none is named."""
    ids = [
        x.value if isinstance(x, ast.Constant) else x
        for x in (loss_id(one) or ast.Constant(0), loss_id(other) or ast.Constant(0))
    ]
    return any(isinstance(x, ast.AST) for x in ids) or ids[0] == ids[1]
