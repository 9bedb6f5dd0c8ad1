"""A program that reads the state of its FP16_Optimizer: the masters and the scaler in it have no counterpart in an optimizer's.

Apex: https://nvidia.github.io/apex/fp16_utils.html#apex.fp16_utils.FP16_Optimizer.state_dict
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.state_dict
Reported as AMP707: see `fp16_optimizer.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.unit import Blocked
from amp_migrate.rules.migration import Migration

MASTERS = "the float32 masters of the weights (after the migration the weights are float32 themselves, and what is written to)"
SCALER = "its loss scaler (ask the GradScaler)"
KEYS = {
    **dict.fromkeys(("fp32_from_fp16", "fp32_groups_flat", "fp32_groups"), MASTERS),
    **dict.fromkeys(
        ("loss_scaler", "dynamic_loss_scale", "cur_scale", "cur_iter", "last_overflow_iter", "overflow"), SCALER
    ),
    "first_closure_call_this_step": "how far a closure is",
    "optimizer_state_dict": "the state of the wrapped optimizer, which is the whole of it then",
}


def refuse(m: Migration, site: Site, call: ast.Call) -> None:
    """Raises Blocked where the state is asked for what only an FP16_Optimizer's has: a test for it would be False from then
    on, a read of it raise."""
    held = _held(m, site.module, call)
    reached = m.project.reaches(held) if held else held
    put = m.project.once(_put)
    for where in dict.fromkeys((site.module, *m.unit.reach)) if held else (site.module,):
        for node, key, holder in _asking(where):
            # What has an entry of that name which the program puts there may be a mapping of its own that holds the state.
            slots = held if key in put else reached
            if (holder is call or (slots and m.project.slot(where, holder) in slots)) and m.live(where, node):
                message = f"{where.source(node)} asks for what only the state of an FP16_Optimizer has, {KEYS[key]}; write that anew"
                raise Blocked(where, call if holder is call else node, "AMP707", site.construct, message)


def _held(m: Migration, module: Module, call: ast.Call) -> set[Slot]:
    """Where a state is kept that a call gives: in a variable, or the parameters that it is given for."""
    parent = module.parents.get(call)
    if isinstance(parent, ast.Assign):
        return m.project.slots(module, parent.targets)
    if isinstance(parent, ast.Call):
        given = ((f, n, v) for f in m.project.resolved.get(parent, ()) for n, v in m.project.arguments(f, parent))
        return {Slot(function.scope, name) for function, name, value in given if value is call}
    return set()


def _put(project: Project) -> set[str]:
    """Of these keys those that the program itself puts into some mapping."""
    found: set[str] = set()
    for module in project.modules:
        if any(key in module.text for key in KEYS):
            keys = [k for d in module.of(ast.Dict) for k in d.keys]
            keys += [s.slice for s in module.of(ast.Subscript) if isinstance(s.ctx, ast.Store)]
            found |= {k.value for k in keys if isinstance(k, ast.Constant) and k.value in KEYS}
            found |= {k.arg for call, _ in module.calls for k in call.keywords if k.arg in KEYS}
    return found


def _asking(module: Module) -> Iterator[tuple[ast.expr, str, ast.expr]]:
    """What asks a mapping for one of the keys: for its entry, or whether it has one."""
    if not any(key in module.text for key in KEYS):
        return
    for node in (*module.of(ast.Subscript), *module.of(ast.Compare), *(call for call, _ in module.calls)):
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            key, holder = node.slice, node.value
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            key, holder = node.left, node.comparators[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            key, holder = node.args[0] if node.args else None, node.func.value
        if isinstance(key, ast.Constant) and key.value in KEYS:
            yield node, key.value, _mapping(holder)


def _mapping(holder: ast.expr) -> ast.expr:
    """`state` of `state.keys()`."""
    keys = isinstance(holder, ast.Call) and isinstance(holder.func, ast.Attribute) and holder.func.attr == "keys"
    return holder.func.value if keys else holder  # type: ignore[attr-defined]
