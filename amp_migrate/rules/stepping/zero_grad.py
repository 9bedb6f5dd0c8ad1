"""Gradients that nothing clears before the next step: O2's step did it itself, O1 let them pile up.

Apex: https://nvidia.github.io/apex/amp.html#o2-almost-fp16-mixed-precision
Native: https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
"""

from __future__ import annotations

from amp_migrate.findings import Code
from amp_migrate.reading.gradients.cleared import clearing, piles_up
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Init, Step
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.stepping.unscale import comprehension

CODES = (
    Code(
        "AMP215",
        "zero_grad is added where O2's step cleared the gradients",
        "optimizer.zero_grad",
        apex="With master weights, every step ends by clearing the master gradients.",
        native="Gradients add up until zero_grad is called.",
        why="Nothing else clears them before the next step: without Apex they would pile up for ever.",
        links=("https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",),
    ),
    Code(
        "AMP224",
        "Gradients that nothing clears",
        "optimizer.zero_grad",
        apex="At O1 what earlier steps left is kept in float32 and added to: without zero_grad gradients pile up for ever.",
        native="A scaler divides all of a gradient by the scale at every step, so that what earlier steps left vanishes.",
        why="The program trains otherwise than before. Nothing is changed for it: whether zero_grad is to be called is for its "
        "author to decide. (Where O2's own step cleared the gradients, it is added: AMP215.)",
        links=("https://pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",),
    ),
)


def apply(m: Migration) -> None:
    modules = {s.module for s in m.unit.steps} | set(m.unit.modules)
    somewhere = any(m.project.once(clearing, module) for module in modules)
    o2 = any(i.only("opt_level") == "O2" for i in m.unit.inits)
    for step in m.unit.steps:
        if not m.live(step.module, step.call) or not (piles_up(m.unit, step) or (o2 and not somewhere)):
            continue
        if o2:
            m.edit(step.module).insert_after(step.stmt, *_clearing(m, step))
            message = "added: under O2 the step cleared the gradients, and nothing else does before the next"
            m.output.note(step.module, step.call, "AMP215", "optimizer.zero_grad", message, "review")
        elif m.scales and any(_scales(i) for i in m.unit.inits):
            message = (
                "nothing in sight clears all gradients between this step and the next: Apex let them pile up, and a "
            )
            message += "scaler divides what is left of earlier steps by the scale again, so that they count no more"
            m.output.note(step.module, step.call, "AMP224", "optimizer.zero_grad", message)


def _clearing(m: Migration, step: Step) -> list[str]:
    """`optimizer.zero_grad()`; for what a comprehension steps in turn, of each."""
    line = f"{step.module.source(step.optimizer)}.zero_grad()"
    header = comprehension(m, step.stmt, step)
    return [f"{header}\n{m.style(step.module).indent}{line}"] if header else [line]


def _scales(init: Init) -> bool:
    """Whether a call may ask for a loss scale, and keeps what earlier steps left: the handle of `amp.init` divided that, too."""
    if isinstance(init, LegacyInit) and not init.wraps:
        return False
    off = init.literal("enabled") is False or init.levels == {"O0"}
    return not off and static_scale(init) != 1.0
