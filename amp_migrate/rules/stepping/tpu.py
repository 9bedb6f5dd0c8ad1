"""Steps on a TPU, `xm.optimizer_step(optimizer)`: they stay, and whether a scaled loss comes to them is said.

No codes of its own: `step.py` has AMP216.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.reading.gradients.served import tpu_steps
from amp_migrate.reading.program.module import FUNCTION_NODES, Module
from amp_migrate.reading.program.tree import method_called, walk
from amp_migrate.rules.migration import Migration

DEPTH = 4  # functions that call one another
STAYS = "steps on a TPU, and is left as it is: amp.initialize raised there, for it wants a CUDA device. "
SCALED = "Where mixed precision is asked for on a TPU, the scaler would scale the loss and nothing unscale it: leave it off there"


def apply(m: Migration) -> None:
    for module, call in tpu_steps(m.unit):
        plain = _after_plain_backward(m, module, call)
        said = "The backward before it scales nothing" if plain else SCALED
        m.output.note(module, call, "AMP216", "xm.optimizer_step", STAYS + said, "as-is" if plain else "look")


def _after_plain_backward(m: Migration, module: Module, step: ast.Call) -> bool:
    """Whether the backward that comes to a step stands above it in its own branch, and scales nothing."""
    ends = [n for n in module.ancestors(step) if isinstance(n, (*FUNCTION_NODES, ast.For, ast.While))]
    for _, before in module.above(step, ends):
        for above in reversed(before):
            calls = [n for n in walk(above) if isinstance(n, ast.Call)]
            if _scales(m, calls, DEPTH):
                return False
            if any(method_called(c) == "backward" for c in calls):
                return True
    return False


def _scales(m: Migration, calls: Iterable[ast.Call], depth: int) -> bool:
    """Whether some calls scale a loss, or run a function that does."""
    losses = {loss.call for loss in m.unit.losses}
    for call in calls:
        run = m.project.resolved.get(call, ()) if depth else ()
        if call in losses or any(_scales(m, (n for n in f.inside if isinstance(n, ast.Call)), depth - 1) for f in run):
            return True
    return False
