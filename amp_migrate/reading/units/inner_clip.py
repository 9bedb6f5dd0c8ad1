"""Whether an optimizer clips its gradients inside of its step: the old FusedAdam, under the FP16_Optimizer of its time.

Apex: https://github.com/NVIDIA/apex/tree/master/apex/contrib/optimizers (FusedAdam(max_grad_norm=...), FP16_Optimizer)
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from amp_migrate.reading.program.definitions import argument
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import public_name
from amp_migrate.reading.values.analysis import Values

FUSED_ADAM = "apex.optimizers.FusedAdam"
POSITION = 7  # of max_grad_norm among the arguments that FusedAdam had then
LIMIT = "max_grad_norm"


@dataclass(frozen=True)
class InnerClip:
    """The norm to which each parameter group's gradients were limited, and the calls that asked for it."""

    module: Module
    limit: ast.expr
    calls: frozenset[ast.Call]

    @property
    def certain(self) -> bool:
        """Whether the limit is a number above zero: zero meant that nothing is clipped."""
        found = self.limit.value if isinstance(self.limit, ast.Constant) else None
        return isinstance(found, (int, float)) and found > 0


def inner_clip(project: Project, module: Module, wrapped: ast.expr) -> InnerClip | None:
    """What the optimizer that an FP16_Optimizer wraps clips to; None where it does not, or where that cannot be told:
    several limits, or groups with limits of their own."""
    limits: dict[ast.Call, tuple[Module, ast.expr]] = {}
    for value in project.once(Values).may_be(module, wrapped):
        call = value.node
        if isinstance(call, ast.Call) and public_name(value.module.qualify(call.func) or "") == FUSED_ADAM:
            limit = argument(call, POSITION, LIMIT)
            if limit is None or any(k.arg is None for k in call.keywords) or _by_group(value.module):
                return None
            limits[call] = value.module, limit
    homes = {home for home, _ in limits.values()}
    if len(homes) != 1 or len({ast.dump(limit) for _, limit in limits.values()}) != 1:
        return None
    home, limit = next(iter(limits.values()))
    off = isinstance(limit, ast.Constant) and not limit.value
    return None if off else InnerClip(home, limit, frozenset(limits))


def _by_group(module: Module) -> bool:
    """Whether a group may bring a limit of its own."""
    if LIMIT not in module.text:
        return False
    keys = (k for n in walk(module.tree) if isinstance(n, ast.Dict) for k in n.keys)
    return any(isinstance(k, ast.Constant) and k.value == LIMIT for k in keys)
