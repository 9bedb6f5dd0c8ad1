"""Forwards for evaluation that another part, or a file out of sight, runs: it is handed the model."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.unseen import evaluates_unseen, trains_unseen
from amp_migrate.reading.regions.no_grad import under_no_grad

if TYPE_CHECKING:
    from amp_migrate.reading.regions.forwards import Forwards


def evaluated_elsewhere(forwards: Forwards, module: Module, call: ast.Call) -> bool:
    """Whether a call hands a model and a batch to what the user or another part chose to run it, and takes what that gives,
    where no gradients are made or used: `scores = run_batch(args, model, batch)`; or to what evaluates it out of sight."""
    if len(call.args) + len(call.keywords) < 2:
        return False
    if run_unseen(forwards, module, call):
        return True
    if isinstance(module.parents.get(call), ast.Expr) or not forwards.handed_over(module, call):
        return False
    return under_no_grad(module, call) or _evaluating(forwards, module, call)


def run_unseen(forwards: Forwards, module: Module, call: ast.Call) -> bool:
    """Whether a call hands one of the models to a function out of sight that evaluates by its name, where nothing trains: in
    sight, or in what is handed a model there."""
    if not forwards.takes_model(module, call) or not evaluates_unseen(forwards.project, module, call):
        return False
    unit = forwards.unit
    handed = ((m, c) for m in unit.reach for c, _ in m.calls if forwards.takes_model(m, c))
    return unit.only_inference and not any(trains_unseen(forwards.project, m, c) for m, c in handed)


def _evaluating(forwards: Forwards, module: Module, call: ast.Call) -> bool:
    """Whether a function that runs no backward puts one of the models into evaluation mode above a call."""
    scope = module.scope_of(call)

    def inside(method: str) -> list[ast.Attribute]:
        return [f for c, f in module.method_calls.get(method, ()) if module.scope_of(c) is scope]

    if not scope.is_function or scope in forwards.scaling or inside("backward"):
        return False
    return any(f.lineno < call.lineno and forwards.is_model(module, f.value) for f in inside("eval"))
