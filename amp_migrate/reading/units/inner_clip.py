"""Whether an optimizer clips its gradients inside of its step: the old FusedAdam, under the FP16_Optimizer of its time.

Apex: https://github.com/NVIDIA/apex/tree/master/apex/contrib/optimizers (FusedAdam(max_grad_norm=...), FP16_Optimizer)
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from amp_migrate.reading.program.definitions import argument, is_off
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import public_name
from amp_migrate.reading.values.analysis import Values

FUSED_ADAM = ("apex.optimizers.FusedAdam", "apex.contrib.optimizers.FusedAdam")
POSITION = 7  # of max_grad_norm among the arguments that FusedAdam had then
LIMIT = "max_grad_norm"


@dataclass(frozen=True)
class InnerClip:
    """The norm to which each parameter group's gradients were limited, and the calls that asked for it. No limit: there
    are several, or groups have limits of their own."""

    module: Module
    limit: ast.expr | None
    calls: frozenset[ast.Call]


def inner_clip(project: Project, module: Module, wrapped: ast.expr) -> InnerClip | None:
    """What the optimizer that an FP16_Optimizer wraps clips to; None where it does not."""
    limits: dict[ast.Call, tuple[Module, ast.expr | None]] = {}
    for value in project.once(Values).may_be(module, wrapped):
        call = value.node
        if isinstance(call, ast.Call) and public_name(value.module.qualify(call.func) or "") in FUSED_ADAM:
            limits[call] = value.module, argument(call, POSITION, LIMIT)
    given = {c: (home, limit) for c, (home, limit) in limits.items() if limit is not None and not is_off(limit)}
    grouped = any(_by_group(home) for home, _ in limits.values())
    if not given and not grouped:
        return None
    home, limit = next(iter((given or limits).values()))
    one = len(given) == len(limits) and len({(h, ast.dump(e)) for h, e in given.values() if e is not None}) == 1
    return InnerClip(home, limit if one and not grouped else None, frozenset(limits))


def _by_group(module: Module) -> bool:
    """Whether a group may bring a limit of its own: a mapping with both keys, or an entry that is set later."""
    if LIMIT not in module.text:
        return False
    for node in walk(module.tree):
        if isinstance(node, ast.Dict):
            keys = {k.value for k in node.keys if isinstance(k, ast.Constant)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            keys = {k.arg for k in node.keywords}
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            keys = {"params", node.slice.value} if isinstance(node.slice, ast.Constant) else set()
        else:
            continue
        if {"params", LIMIT} <= keys:
            return True
    return False
