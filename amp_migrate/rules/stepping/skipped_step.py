"""Skipped steps told from `optimizer._step_count`: asked of the scale instead.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.get_scale
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.rules.migration import Migration

NAME = "_step_count"

CODES = (
    Code(
        "AMP218",
        "A skipped step is told from optimizer._step_count",
        "optimizer._step_count",
        apex="A skipped step replaces optimizer.step for one call, so a scheduler's counter on it does not move.",
        native="scaler.step leaves optimizer.step uncalled; the counter belongs to the scheduler and is not promised.",
        why="The scale is: compare scaler.get_scale() before and after update(); lower means that the step was skipped.",
        links=("https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.get_scale",),
    ),
)


def apply(m: Migration) -> None:
    if not m.scales:
        return
    for module in m.unit.reach:
        if NAME not in module.text:
            continue
        for node in module.nodes:
            if not isinstance(node, ast.Attribute) or node.attr != NAME or not m.live(module, node):
                continue
            if not isinstance(node.ctx, ast.Load):
                continue  # whoever sets it keeps count, and tells nothing from it
            if m.project.slot(module, node.value) in m.unit.optimizer_slots:
                m.output.note(
                    module,
                    node,
                    "AMP218",
                    f"optimizer.{NAME}",
                    "_step_count does not tell skipped steps reliably; a scale that is lower after update() than before does",
                    "review",
                )
