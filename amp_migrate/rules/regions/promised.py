"""What O2 and O3 gave in float32: what the forward of a model gave that `initialize` was handed, and nothing beside.

Apex: https://nvidia.github.io/apex/amp.html#o2-almost-fp16-mixed-precision (cast_model_outputs)
Native: https://pytorch.org/docs/stable/amp.html#torch.autocast
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions.half_values import HalfValues


def promises_float32(m: Migration) -> bool:
    """Whether Apex made what some model gave float32."""
    asked = [(i.only("opt_level"), i.only("cast_model_outputs")) for i in m.unit.inits]
    return any(level in ("O2", "O3") or cast not in (None, False) for level, cast in asked)


def gives_floats(m: Migration, module: Module, call: ast.Call) -> bool:
    """Whether Apex patched what a call of a model runs: another method that does not run the forward, `model.generate(ids)`, or
    a part, `model.encoder(ids)`, gave what it computed, half."""
    forwards = m.regions.forwards
    run = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "forward" else call.func
    part = forwards.is_part(module, run) and not m.unit.holds_model(module, run)
    return not part and (
        not forwards.by_method(module, call) or any(map(_runs_forward, m.project.resolved.get(call, ())))
    )


def _runs_forward(method: Function) -> bool:
    own = method.scope.self_name
    runs = (ast.unparse(n.func) for n in method.inside if isinstance(n, ast.Call))
    return own is not None and not {own, f"{own}.forward", f"{own}.__call__"}.isdisjoint(runs)


class Promised(HalfValues):
    """The values that may be half where O2 and O3 gave float32."""

    def is_output(self, node: ast.expr) -> bool:
        found = super().is_output(node)
        return found and isinstance(node, ast.Call) and gives_floats(self.m, self.module, node)
