"""`torch.utils.checkpoint.checkpoint(run, x)`: a call that runs what it is given, there and then, and once more in backward, in
the same autocast state.

https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amp_migrate.audit.program.module import Module, Scope

if TYPE_CHECKING:
    from amp_migrate.audit.program.imports import Imports

RERUNS = frozenset({"torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint"})


def run_by(program: Imports, scope: Scope, call: ast.Call) -> ast.expr | None:
    """What such a call runs with its other arguments; None where it is no such call."""
    if not call.args or "checkpoint" not in scope.module.words or isinstance(call.args[0], ast.Starred):
        return None
    return call.args[0] if program.dotted(scope, call.func) in RERUNS else None


def run_there(program: Imports, module: Module, expr: ast.expr) -> ast.Call | None:
    """The call that runs a function which is handed to it here."""
    call = module.parents.get(expr)
    return call if isinstance(call, ast.Call) and run_by(program, module.scope_of(call), call) is expr else None
