"""Under O2 the step clears the gradients itself; a program that relied on it needs `zero_grad`.

Apex: https://nvidia.github.io/apex/amp.html#o2-almost-fp16-mixed-precision
Native: https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.module import FUNCTION_NODES, LOOP_NODES, Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.units.opt_levels import opt_levels
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Init
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
    Code(
        "AMP224",
        "Gradients that nothing clears",
        "optimizer.zero_grad",
        apex="At O1 what earlier steps left is kept in float32 and added to: without zero_grad gradients pile up for ever.",
        native="A scaler divides all of a gradient by the scale at every step, so that what earlier steps left vanishes.",
        why="The program trains otherwise than before; zero_grad, or leaving it out on purpose, is for its author to decide.",
        links=("https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",),
    ),
)


def apply(m: Migration) -> None:
    modules = {s.module for s in m.unit.steps} | set(m.unit.modules)
    if any(m.project.once(_clearing, module) for module in modules):
        return
    if not any(i.literal("opt_level") == "O2" for i in m.unit.inits):
        for step in m.unit.steps:
            if (
                m.scales
                and any(_scales(m, i) for i in m.unit.inits)
                and m.live(step.module, step.call)
                and _repeated(step.module, step.call)
            ):
                message = "no zero_grad in sight: Apex let these gradients pile up, and a scaler divides what is left of earlier "
                message += "steps by the scale again, so that they count no more"
                m.output.note(step.module, step.call, "AMP224", "optimizer.zero_grad", message)
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


def _scales(m: Migration, init: Init) -> bool:
    """Whether a call may ask for a loss scale."""
    off = init.literal("enabled") is False or opt_levels(m.project, init) == {"O0"}
    return not off and static_scale(init) != 1.0


def _repeated(module: Module, call: ast.AST) -> bool:
    """Whether a step stands in a loop of its function: what it is called from may clear the gradients elsewhere."""
    for node in module.ancestors(call):
        if isinstance(node, LOOP_NODES):
            return True
        if isinstance(node, FUNCTION_NODES):
            return False
    return False


def _clearing(project: Project, module: Module) -> bool:
    """Whether anything in a file clears gradients."""
    return any(_clears(node) for node in module.nodes)


def _clears(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "zero_grad"
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Attribute) and t.attr == "grad" for t in node.targets)
