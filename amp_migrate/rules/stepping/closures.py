"""A closure that a wrapper's `step` only hands on: the step goes through the scaler where there is none.

Apex: https://nvidia.github.io/apex/advanced.html
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step

`scaler.step(optimizer, closure)` would run a closure given by position after the gradients were unscaled, and what its
backward adds would be stepped with: the code that a user may give one refuses it, as long as the scaler is enabled.
"""

from __future__ import annotations

import ast

from amp_migrate.reading.units.unit import Blocked, Step
from amp_migrate.reading.values.closures import given_closures, is_handed_on, is_none_beside, refused_before
from amp_migrate.rules.migration import Migration

UNSUPPORTED = (
    "step is given a closure, which neither Apex nor GradScaler supports; write its passes out around scaler.step"
)
OWN_ARGUMENTS = (
    "step is given more than a closure, so that this is no optimizer of torch's, and what it steps is not seen here: let the "
    "step that it comes to go through the scaler"
)


def closure_argument(m: Migration, step: Step, scaler: str) -> str:
    """The argument that is handed on to the optimizer's step, after what refuses a closure in it; empty without one.

    Raises Blocked where a closure is, or may well be, given.
    """
    module, call = step.module, step.call
    closures = given_closures(call)
    if not closures:
        return ""
    beside = len(closures) == 1 and is_none_beside(module, closures[0], _scaled(m, step))
    if not beside and (len(closures) > 1 or not is_handed_on(m.project, module, closures[0])):
        raise Blocked(module, call, "AMP212", "optimizer.step", OWN_ARGUMENTS if _takes_its_own(call) else UNSUPPORTED)
    several = isinstance(closures[0], ast.Starred)
    parameter = closures[0].value if isinstance(closures[0], ast.Starred) else closures[0]
    assert isinstance(parameter, ast.Name)
    name = parameter.id
    if refused_before(module, step.stmt, name):
        return ""
    quote, indent = m.style(module).quote, m.style(module).indent
    m.edit(module).insert_before(
        step.stmt,
        f"if {name if several else f'{name} is not None'} and {scaler}.is_enabled():\n"
        f"{indent}raise RuntimeError({quote}GradScaler does not support closures{quote})",
    )
    given = f"*{name}" if several else name
    if beside:
        message = f"{name} is None wherever the loss is scaled; should it not be, this raises, as Apex did: GradScaler takes none"
    else:
        message = (
            f"nothing in sight gives {given}; whoever does now gets an error, as GradScaler supports no closures: "
            "write their passes out around the step"
        )
    m.output.note(module, call, "AMP212", "optimizer.step", message, "look" if beside else "review")
    return given


def _scaled(m: Migration, step: Step) -> list[ast.stmt]:
    """Where the losses are scaled, if all are in the function of a step."""
    if any(loss.module.scope_of(loss.with_stmt) is not step.scope for loss in m.unit.losses):
        return []
    return [loss.with_stmt for loss in m.unit.losses]


def _takes_its_own(call: ast.Call) -> bool:
    """Whether a step is given what no optimizer of torch takes: the only argument of theirs is the closure."""
    plain = [a for a in call.args if not isinstance(a, ast.Starred)]
    return len(plain) > 1 or any(k.arg not in (None, "closure") for k in call.keywords)
