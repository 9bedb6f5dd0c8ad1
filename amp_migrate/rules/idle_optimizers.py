"""Several optimizers under one scaler, of which one may get no gradient in an iteration.

Native: https://pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.module import Scope
from amp_migrate.reading.unit import Step
from amp_migrate.reading.view import Node, chain, find
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP219",
        "An optimizer may get no gradient in an iteration",
        "optimizer.step",
        apex="Steps with whatever gradients there are.",
        native="scaler.step raises where none of the optimizer's parameters has a gradient: No inf checks were recorded "
        "for this optimizer.",
        why="A forward that only some iterations run leaves the parameters of its model without gradients in the others. "
        "Step that optimizer under the same condition.",
        links=(
            "https://pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-models-losses-and-optimizers",
        ),
    ),
)


def apply(m: Migration) -> None:
    if not m.scales:
        return
    scopes: dict[Scope, list[Step]] = {}
    for step in m.unit.steps:
        if m.live(step.module, step.call):
            scopes.setdefault(step.scope, []).append(step)
    for scope, steps in scopes.items():
        if len({scope.module.source(step.optimizer) for step in steps}) > 1:
            _review(m, scope, steps)


def _review(m: Migration, scope: Scope, steps: list[Step]) -> None:
    """Say so at each step that stands outside of a condition which a forward of some model stands under."""
    module, view = scope.module, m.regions.view(scope)
    forwards = [n for n in view.walk() if any(m.regions.is_forward(module, a) for a in n.own())]
    for step in steps:
        stepped = find(view, step.stmt)
        if stepped is None or not any(_rarer(node, stepped) for node in forwards):
            continue
        m.output.note(
            module,
            step.call,
            "AMP219",
            "optimizer.step",
            f"a forward above runs under a condition: where {module.source(step.optimizer)} gets no gradient, scaler.step "
            "raises; step it under the same condition",
            "review",
        )


def _rarer(forward: Node, step: Node) -> bool:
    """Whether a forward stands under an `if` without a counterpart in its else, beside the step."""
    above = chain(step)
    for node in chain(forward)[1:]:
        if node in above:
            return False
        if isinstance(node.stmt, ast.If) and not node.stmt.orelse:
            return any(a.parent is node.parent for a in above) and node.stmt.lineno < step.stmt.lineno
    return False
