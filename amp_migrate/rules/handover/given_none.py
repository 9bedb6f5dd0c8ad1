"""A function that is handed the scaler in the place of `amp` may be called without one, as it was without amp.

Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import Function, is_none
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.signatures import is_public
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.threads import Thread
from amp_migrate.rules.migration import Migration

CODES: tuple[Code, ...] = ()


def off_where_none(m: Migration, function: Function, name: str) -> None:
    """A disabled scaler where a function is called without one."""
    module = function.module
    line = f"if {name} is None:\n{m.style(module).indent}{name} = {m.scaler_off(module, function.scope)}"
    m.edit(module).before.setdefault(function.scope.first, []).insert(0, line)


def needs_one(m: Migration, plan: ScalerPlan, thread: Thread, old: str) -> bool:
    """Whether a function that may be given None for `amp` keeps the scaler for its object, or scales or steps with it."""
    function = thread.function
    if function in plan.storing:
        open_to_others = is_none(function.defaults.get(old)) and is_public(m.project, function)
        return bool(thread.without) or open_to_others
    used = [x.module.scope_of(x.call) for x in m.unit.losses] + [x.module.scope_of(x.call) for x in m.unit.steps]
    return bool(thread.without) and any(scope.outermost is function.scope for scope in used)


def unpacked(m: Migration, module: Module, call: ast.Call, old: str) -> bool:
    """Whether a call hands `amp` on among all that its function was given by name: `train(**kwargs)`."""
    held = (m.project.slot(module, k.value) for k in call.keywords if k.arg is None)
    return any(m.project.passed_modules.get(Slot(slot, f"[{old}]")) is not None for slot in held if slot is not None)
