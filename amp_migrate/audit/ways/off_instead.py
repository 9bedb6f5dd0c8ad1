"""Scalers that are off, in place of none: `if scaler is None: scaler = GradScaler(enabled=False)`."""

from __future__ import annotations

import ast

from amp_migrate.audit.program.module import Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.ways.trails import Place

GRAD_SCALER = {"torch.amp.GradScaler": 5, "torch.cuda.amp.GradScaler": 4, "torch.amp.grad_scaler.GradScaler": 5}


def given_or_off(program: Program, scaler: ast.expr, place: Place) -> tuple[ast.expr, Place] | None:
    """What a parameter was filled with that is given nothing else in its function but scalers that are off."""
    if not isinstance(scaler, ast.Name) or scaler.id not in place.filled:
        return None
    others = [node for node in place.scope.bindings[scaler.id] if not isinstance(node, ast.arg)]
    calls = [node.value for node in others if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    off = len(calls) == len(others) > 0 and all(_is_off(program, place.scope, call) for call in calls)
    return place.filled[scaler.id] if off else None


def _is_off(program: Program, scope: Scope, call: ast.Call) -> bool:
    maker = program.dotted(scope, call.func)
    on = argument(call, "enabled", GRAD_SCALER[maker]) if maker in GRAD_SCALER else None
    return isinstance(on, ast.Constant) and on.value is False
