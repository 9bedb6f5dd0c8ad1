"""A loss that no network computes gives no gradient: `scaler.step` raises where Apex's step did nothing.

`loss = torch.zeros(1, requires_grad=True).to(device)`, a placeholder. Proved: all that the name is given in its function is made by
torch of numbers, and moved. Not proved: that the optimizer gets no gradient from another loss, so that it is told, not refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP232: see `stepping.py`

MADE = frozenset(f"torch.{name}" for name in "zeros ones full empty tensor rand randn".split())
MOVED = frozenset("to cuda cpu float double half requires_grad_ mean sum".split())


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        module = change.after
        if "GradScaler" not in module.words:
            continue
        for call, _ in module.method_calls("scale"):
            loss = call.args[0] if len(call.args) == 1 else None
            if not isinstance(loss, ast.Name) or not change.changed(call) or not _only_made(review, module, loss):
                continue
            message = (
                f"{loss.id} is made here of numbers, and no parameter has a gradient of it: where nothing else gives one, "
                'scaler.step raises "No inf checks were recorded for this optimizer.", where Apex\'s step did nothing'
            )
            yield review.doubt(module, call, "AMP232", "optimizer.step", message, "review")


def _only_made(review: Review, module: Module, loss: ast.Name) -> bool:
    scope = module.scope_of(loss)
    bound = scope.bindings.get(loss.id, ()) if scope.binder(loss.id) is scope else ()
    values = [b.value if isinstance(b, ast.Assign) and isinstance(b.targets[0], ast.Name) else None for b in bound]
    return bool(values) and all(v is not None and _made(review, module, v) for v in values)


def _made(review: Review, module: Module, value: ast.expr) -> bool:
    """Whether torch makes a tensor of numbers, which is then moved or cast."""
    value = syntax.chained(value, MOVED)
    if not isinstance(value, ast.Call) or review.after.dotted(module.scope_of(value), value.func) not in MADE:
        return False
    given = (n for a in value.args for n in syntax.walk(a))
    return not any(isinstance(n, (ast.Name, ast.Attribute, ast.Call)) for n in given)
