"""Gradient accumulation: what several backwards before one step mean for the scale.

Apex: https://nvidia.github.io/apex/advanced.html#gradient-accumulation-across-iterations
Native: https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

import ast
import re

from amp_migrate.findings import Code
from amp_migrate.reading.program.module import LOOP_NODES
from amp_migrate.reading.program.view import Block, Node, chain, find
from amp_migrate.reading.units.unit import Loss, Step
from amp_migrate.rules.migration import Migration

BOUNDARY = re.compile(r"accum|micro|update|boundary|sync|grad_?step", re.IGNORECASE)

CODES = (
    Code(
        "AMP207",
        "The scale changes once per step, not once per backward",
        "amp.scale_loss",
        apex="Every backward that ends without overflow counts towards the next doubling; every one that overflows halves "
        "the scale and skips the step.",
        native="update() counts steps: the scale doubles after growth_interval steps and halves once for a step that "
        "overflowed.",
        why="With N backwards per step the scale grows N times more slowly, unless growth_interval is divided by N.",
        links=(
            "https://nvidia.github.io/apex/advanced.html#gradient-accumulation-across-iterations",
            "https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        ),
    ),
)


def apply(m: Migration) -> None:
    """Announce it for each loss that is scaled more often than its optimizer steps."""
    if not m.scales:
        return
    for loss in m.unit.losses:
        delayed = loss.delay_unscale
        if delayed is not None and not (isinstance(delayed, ast.Constant) and delayed.value is False):
            continue  # says so itself
        if loss.item is None:
            continue  # an FP16_Optimizer counts its steps
        if m.live(loss.module, loss.with_stmt) and any(_rarer(m, loss, step) for step in m.unit.steps):
            m.output.note(
                loss.module,
                loss.call,
                "AMP207",
                "amp.scale_loss",
                "several backwards per step: the scale grows per step now, not per backward (growth_interval=2000 // N "
                "for N of them keeps Apex's pace), and an overflow halves it once per step",
            )


def _rarer(m: Migration, loss: Loss, step: Step) -> bool:
    """Whether a step of the same scope stands under a condition, or outside a loop, that the loss does not share."""
    module = loss.module
    if step.module is not module or module.scope_of(loss.call) is not step.scope or not m.live(module, step.call):
        return False
    view = m.regions.view(step.scope)
    first = next((s for s in getattr(loss.with_stmt, "body", ())), loss.with_stmt)
    scaled, stepped = find(view, first), find(view, step.stmt)
    if scaled is None or stepped is None:
        return False
    around, above = chain(scaled)[1:], chain(stepped)[1:]
    shared = next((n for n in above if n in around), None)
    if shared is not None and not any(_holds(b, scaled) and _holds(b, stepped) for b in shared.blocks):
        return False  # in different branches
    if _left_out(scaled, stepped):
        return True
    looped = any(isinstance(n.stmt, LOOP_NODES) and n not in above for n in around)
    if looped and loss.call.lineno < step.call.lineno:
        return any(isinstance(n.stmt, LOOP_NODES) for n in above)
    return any(isinstance(n.stmt, ast.If) and n not in around and _counts(n.stmt.test) for n in above)


def _left_out(scaled: Node, stepped: Node) -> bool:
    """`if (i + 1) % 4 != 0: continue` between the scaled backward and the step."""
    around = chain(scaled)
    for link in chain(stepped):
        if isinstance(link.stmt, LOOP_NODES):
            return False
        start = next((n.index for n in around if n.parent is link.parent), 0)
        for node in link.parent.nodes[start : link.index]:
            if isinstance(node.stmt, ast.If) and _counts(node.stmt.test):
                if any(isinstance(n.stmt, (ast.Continue, ast.Return)) for n in node.walk()):
                    return True
    return False


def _holds(block: Block, node: Node) -> bool:
    return any(n.parent is block for n in chain(node))


def _counts(test: ast.expr) -> bool:
    """Whether a condition looks at the number of the iteration."""
    return any(isinstance(n, ast.Mod) for n in ast.walk(test)) or bool(BOUNDARY.search(ast.unparse(test)))
