"""`min_loss_scale` and `max_loss_scale`: the bounds of a dynamic scale, kept by `update(new_scale)`.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.scaler.home import Home, only_inside
from amp_migrate.reading.switch.elsewhere import visible
from amp_migrate.reading.units.static_scale import number, pinned, static_scale
from amp_migrate.reading.units.unit import Blocked, Init, Step
from amp_migrate.reading.values.there import may_lack
from amp_migrate.rules.carried_setting import Conflict, handed
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.scale.guarded import asked_first, guarded

APEX = "https://nvidia.github.io/apex/amp.html#apex.amp.initialize"
NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update"
INITIAL = 2.0**16  # of both scalers
DEFAULT_MAXIMUM = 2.0**24  # of Apex; GradScaler has none
BOUNDS = (("min_loss_scale", "<"), ("max_loss_scale", ">"))

CODES = (
    Code(
        "AMP117",
        "The bounds of the loss scale are kept",
        "amp.initialize",
        apex="min_loss_scale and max_loss_scale (default 2**24) bound a dynamic scale.",
        native="GradScaler has no bounds; update(new_scale) puts the scale back where it leaves them, and the first scale is "
        "no higher than the upper one.",
        why="Without the lower bound a run of overflows takes the scale to where gradients vanish. The default upper bound "
        "is not written out: a scale above 2**24 is only reached where gradients are tiny.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                'model, optimizer = amp.initialize(model, optimizer, opt_level="O1", min_loss_scale=128.0)',
                "scaler.update()\nif scaler.get_scale() < 128.0:\n    scaler.update(128.0)",
            ),
        ),
    ),
)


def clamps(m: Migration, scaler: str, module: Module, stmt: ast.stmt, step: Step, dynamic: str | None) -> list[str]:
    """The lines after `update()` that keep the scale within the bounds which the unit asked for.

    `dynamic`: the condition under which the scale is dynamic, for a static one has no bounds; empty for always, None for
    never.
    """
    if dynamic is None:
        return []
    inits = [i for i in m.inits_for(module, stmt, step.optimizer) if not _fixed(i)]
    lines = (_clamp(m, inits, name, sign, scaler, module, stmt, step, dynamic) for name, sign in BOUNDS)
    return [line for line in lines if line]


def _clamp(
    m: Migration,
    inits: list[Init],
    name: str,
    sign: str,
    scaler: str,
    module: Module,
    stmt: ast.stmt,
    step: Step,
    dynamic: str,
) -> str:
    """One of them; empty where no call asked for the bound, or where it can neither be seen nor handed to the step."""
    bounds = {init: bound for init in inits if (bound := _bound(init, name)) is not None}
    if not bounds:
        return ""
    init, bound = next(iter(bounds.items()))
    text = _text(init, bound)
    unset = False
    alike = len(bounds) == len(inits) and len({_text(i, b) for i, b in bounds.items()}) == 1
    homes = m.scaler_of(module, step.optimizer).homes
    branch = any(h.init in bounds and _only_there(m, h, bounds[h.init]) for h in homes)
    maybe = len(bounds) < len(inits) or any(number(b) is None for b in bounds.values())
    if not alike or branch or not visible(m.project, text, init.site.scope, module.scope_of(stmt)):
        handed = _handed(m, bounds, name, module, stmt, step)
        if handed is None:
            for init, bound in bounds.items():
                _not_kept(m, init, f"{name}={_text(init, bound)}")
            return ""
        text = handed
        unset = branch or bool(m.until_then)  # None as long as the scaler is a disabled one
    for each, kept in bounds.items():
        message = f"{name}={_text(each, kept)} is kept: the scale is put back after update()"
        m.output.note(each.module, each.call, "AMP117", "amp.initialize", message, "as-is")
    asked = [dynamic] if dynamic else []
    asked += [text] if maybe and (name == "min_loss_scale" or not alike or unset) else []
    condition = " and ".join([*asked, f"{scaler}.get_scale() {sign} {text}"])
    return f"if {condition}:\n{m.style(module).indent}{scaler}.update({f'float({text})' if maybe else text})"


def _only_there(m: Migration, home: Home, bound: ast.expr) -> bool:
    """Whether a bound is to be read where the scaler is created, and nowhere else."""
    inside = home.above is not None and may_lack(m.project, home.init.module, bound, home.inside) is not None
    return inside or only_inside(home.init, home.inside, bound) or bool(asked_first(m, home, [bound]))


def _handed(
    m: Migration, bounds: dict[Init, ast.expr], name: str, module: Module, stmt: ast.stmt, step: Step
) -> str | None:
    """The bound as a value that goes where the scaler goes; None where it cannot."""
    plan = m.scaler_of(module, step.optimizer)
    if any(_text_at(m, home, bounds) is None for home in plan.homes):
        return None
    what = f"the {'lower' if name == 'min_loss_scale' else 'upper'} bound of the loss scale"
    try:
        return handed(m, module, stmt, step, name, what, lambda home: _text_at(m, home, bounds) or "None")
    except (Blocked, Conflict):
        return None


def _text_at(m: Migration, home: Home, bounds: dict[Init, ast.expr]) -> str | None:
    """A bound where the scaler is created: `None` where that call asked for none; None where it cannot be seen."""
    bound = bounds.get(home.init)
    if bound is None:
        return "None"
    text = _text(home.init, bound)
    if not visible(m.project, text, home.init.site.scope, home.scope):
        return None
    return guarded(text, asked_first(m, home, [bound]), "None")


def unbounded(m: Migration) -> None:
    """Say which bounds Apex was given that the native side of a program, which stays as it is, does not have."""
    for init in m.unit.inits:
        for name, _ in BOUNDS:
            bound = _bound(init, name)
            if bound is not None:
                text = _text(init, bound)
                message = (
                    f"{name}={text} has no effect any more: nothing bounds the scale of the native side, which stays"
                )
                m.output.note(init.module, bound, "AMP117", "amp.initialize", message)


def first_scale(m: Migration, home: Home) -> str | None:
    """The initial scale where the upper bound is, or may be, below the usual one: Apex takes the lower of both."""
    init = home.init
    bound = _bound(init, "max_loss_scale")
    if bound is None:
        return None
    text, value = _text(init, bound), number(bound)
    if value is not None:
        return text if value < INITIAL else None
    if not visible(m.project, text, init.site.scope, home.scope):
        message = f"max_loss_scale={text} does not bound the first scale: pass init_scale=min(2.0**16, {text})"
        m.output.note(init.module, init.call, "AMP117", "amp.initialize", message, "review")
        return None
    return guarded(f"min(2.0**16, {text})", asked_first(m, home, [bound]), "2.0**16")


def _bound(init: Init, name: str) -> ast.expr | None:
    """The bound that a unit asked for; None where that is Apex's default."""
    node = init.arguments.get(name)
    if node is None or _fixed(init):
        return None
    if isinstance(node, ast.Constant) and not node.value:
        return None
    return None if name == "max_loss_scale" and number(node) == DEFAULT_MAXIMUM else node


def _text(init: Init, bound: ast.expr) -> str:
    """A bound as code: a float where its value is known, for `update` takes no other number."""
    text, value = init.module.source(bound), number(bound)
    return text if value is None or (isinstance(bound, ast.BinOp) and "." in text) else repr(value)


def _fixed(init: Init) -> bool:
    """Whether nothing is left for bounds to do: the scale is static, or they are the same."""
    return isinstance(static_scale(init), float) or pinned(init) is not None


def _not_kept(m: Migration, init: Init, bound: str) -> None:
    message = f"{bound} is not kept: the step cannot see it; hand it there and bound the scale after update()"
    m.output.note(init.module, init.call, "AMP117", "amp.initialize", message, "review")
