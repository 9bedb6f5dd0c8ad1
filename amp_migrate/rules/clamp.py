"""`min_loss_scale` and `max_loss_scale`: the bounds of a dynamic scale, kept by `update(new_scale)`.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.flags import visible
from amp_migrate.reading.module import Module
from amp_migrate.reading.static_scale import number, static_scale
from amp_migrate.reading.unit import Init
from amp_migrate.rules.migration import Migration

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
        native="GradScaler has no bounds; update(new_scale) puts the scale back where it leaves them.",
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


def clamps(m: Migration, scaler: str, module: Module, stmt: ast.stmt, optimizer: ast.expr) -> list[str]:
    """The lines after `update()` that keep the scale within the bounds which the unit asked for."""
    lines: list[str] = []
    indent = m.style(module).indent
    for init in m.inits_of(module, optimizer):
        for name, sign in BOUNDS:
            bound = _bound(init, name)
            if bound is None:
                continue
            text = _text(init, bound)
            if not visible(m.project, text, init.site.scope, module.scope_of(stmt)):
                _out_of_sight(m, init, name, text)
                continue
            computed = number(bound) is None
            asked = f"{text} and " if computed and name == "min_loss_scale" else ""
            value = f"float({text})" if computed else text
            lines.append(f"if {asked}{scaler}.get_scale() {sign} {text}:\n{indent}{scaler}.update({value})")
    return list(dict.fromkeys(lines))


def first_scale(init: Init) -> str | None:
    """The initial scale where the upper bound is below the usual one."""
    bound = _bound(init, "max_loss_scale")
    value = number(bound) if bound is not None else None
    return _text(init, bound) if bound is not None and value is not None and value < INITIAL else None


def _bound(init: Init, name: str) -> ast.expr | None:
    """The bound that a unit asked for; None where that is Apex's default."""
    node = init.arguments.get(name)
    if node is None or isinstance(static_scale(init), float):
        return None
    if isinstance(node, ast.Constant) and not node.value:
        return None
    return None if name == "max_loss_scale" and number(node) == DEFAULT_MAXIMUM else node


def _text(init: Init, bound: ast.expr) -> str:
    """A bound as code: a float where its value is known, for `update` takes no other number."""
    text, value = init.module.source(bound), number(bound)
    return text if value is None or (isinstance(bound, ast.BinOp) and "." in text) else repr(value)


def _out_of_sight(m: Migration, init: Init, name: str, text: str) -> None:
    message = f"{name}={text} is not kept: the step cannot see it; hand it there and bound the scale after update()"
    m.output.note(init.module, init.call, "AMP117", "amp.initialize", message, "review")
