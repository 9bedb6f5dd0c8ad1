"""Under O2 the step clears the gradients itself; a program that relied on it needs `zero_grad`.

Apex: https://nvidia.github.io/apex/amp.html#o2-almost-fp16-mixed-precision
Native: https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP215",
        "zero_grad is added where O2's step cleared the gradients",
        "optimizer.zero_grad",
        apex="With master weights, every step ends by clearing the master gradients.",
        native="Gradients add up until zero_grad is called.",
        why="The program never calls zero_grad: without Apex its gradients would pile up for ever.",
        links=("https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",),
    ),
)


def apply(m: Migration) -> None:
    if not any(i.literal("opt_level") == "O2" for i in m.unit.inits):
        return
    modules = {s.module for s in m.unit.steps} | set(m.unit.modules)
    if any(_clears(node) for module in modules for node in ast.walk(module.tree)):
        return
    for step in m.unit.steps:
        if m.live(step.module, step.call):
            text = step.module.source(step.optimizer)
            m.edit(step.module).insert_after(step.stmt, f"{text}.zero_grad()")
            m.output.note(
                step.module,
                step.call,
                "AMP215",
                "optimizer.zero_grad",
                "added: under O2 the step cleared the gradients, and nothing else does",
                "review",
            )


def _clears(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "zero_grad"
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Attribute) and t.attr == "grad" for t in node.targets)
