"""Losses by the name of what they are kept in, that no call is named after: `losses["real"] = F.softplus(-scores).mean()`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.view import Node
from amp_migrate.reading.values.operations import FUNCTIONAL_IN_APEX, HOST, LOSS_NAMES, TORCH_IN_APEX

NOT_LOSSES = re.compile(
    r"(?:^|_)(reduced?|meter|log|print|record|append|update|add|track|save|plot|show|report|running|avg|average|get|check|validate|is|nan|inf|finite|plain|scale|scaled|format|formatted|str|string|text|name|names|history|curve|write|writer|summary)(?:_|$)"
)
COMPUTING = (FUNCTIONAL_IN_APEX | TORCH_IN_APEX) - frozenset("sum prod".split())  # these count as well


def keeps_loss(module: Module, node: Node, names: Iterable[str]) -> bool:
    """Whether a statement gives a loss to one of some names, which it computes by a function of torch that Apex ran in float32;
    not a number of it."""
    if not isinstance(node.stmt, (ast.Assign, ast.AnnAssign)):
        return False
    if not any(LOSS_NAMES.search(name) and not NOT_LOSSES.search(name) for name in names):
        return False
    called = {call: called_name(call) for call in node.calls}
    if not (HOST | {"cpu", "float", "double"}).isdisjoint(called.values()):
        return False
    return any(name in COMPUTING and (module.qualify(c.func) or "").startswith("torch.") for c, name in called.items())
