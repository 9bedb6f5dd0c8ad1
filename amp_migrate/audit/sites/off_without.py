"""Regions that are off in a run which sets nothing up, as they ask a scaler that is made disabled first."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.program.module import Module
from amp_migrate.audit.sites.regions import Region
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.ways.off_instead import GRAD_SCALER

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed


def off_without(both: Mixed, region: Region) -> bool:
    """Whether a region asks scalers that are off until code which set Apex up before makes others: it is off without that."""
    asked, _ = region.switch
    if len(asked) != 1:
        return False
    parts = asked[0].values if isinstance(asked[0], ast.BoolOp) else asked
    return any(_scaler_off_without(both, region.module, part) for part in parts)


def _scaler_off_without(both: Mixed, module: Module, asked: ast.expr | None) -> bool:
    if not isinstance(asked, ast.Call) or last_name(asked.func) != "is_enabled":
        return False
    assert isinstance(asked.func, ast.Attribute)
    values = both.review.values_after
    origins = values.origins(module.scope_of(asked), asked.func.value)
    made = [o.node for o in origins if isinstance(o.node, ast.Call) and values.maker(o) in GRAD_SCALER]
    if len(made) < len(origins):
        return False
    off = [o for o in origins if isinstance(o.node, ast.Call) and _is_off(o.node, GRAD_SCALER[values.maker(o) or ""])]
    set_up = {s.module.path for s in both.removed}
    return bool(off) and all(o in off or o.module.path in set_up for o in origins)


def _is_off(call: ast.Call, position: int) -> bool:
    enabled = argument(call, "enabled", position)
    return isinstance(enabled, ast.Constant) and enabled.value is False
