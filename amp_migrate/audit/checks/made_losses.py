"""A loss that no network computes gives no gradient: `scaler.step` raises where Apex's step did nothing.

`loss = torch.zeros(1, requires_grad=True).to(device)`, a placeholder. Proved: all that the name is given in its function is made by
torch of numbers, and moved, and nothing in sight puts anything into it. Not proved: that the optimizer gets no gradient from
another loss, so that it is told, not refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP232: see `stepping.py`

MADE = frozenset(f"torch.{name}" for name in "zeros ones full empty tensor rand randn".split())
DEEPEST = 3  # functions that hand it on to each other
MOVED = frozenset("to cuda cpu float double half requires_grad_".split())
REDUCED = frozenset({"mean", "sum"})


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
    made = bool(values) and all(v is not None and _made(review, module, v) for v in values)
    return made and not any(_may_fill(review, module, n) for n in _read(scope, loss.id))


def _read(scope: Scope, name: str) -> Iterator[ast.Name]:
    """Where a name of a scope is read, also in functions in it."""
    for node in scope.module.loads.get(name, ()):
        if isinstance(node, ast.Name) and scope.module.scope_of(node).binder(name) is scope:
            yield node


def _may_fill(review: Review, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether something may be put into a tensor where it is read: `loss.add_(...)`, `loss[0] = ...`, by another name, or by a
    function of the program that is handed it."""
    around = module.parents[node]
    if isinstance(around, ast.Attribute):
        call = module.parents[around]
        if around.attr == "data":
            return isinstance(around.ctx, ast.Store) or _may_fill(review, module, around, depth)
        if not isinstance(call, ast.Call) or call.func is not around:
            return False
        if around.attr in MOVED:
            return _may_fill(review, module, call, depth)
        return around.attr.endswith("_") and not around.attr.endswith("__")
    if isinstance(around, ast.Subscript):
        part = around.value is node
        return part and (not isinstance(around.ctx, ast.Load) or _may_fill(review, module, around, depth))
    if isinstance(around, ast.keyword):
        return around.arg == "out" or _hands_on(review, module, module.parents[around], node, depth)
    # A name for it, or a part of it, is the same tensor.
    keeps = isinstance(around, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Tuple, ast.List, ast.Dict))
    return keeps or _hands_on(review, module, around, node, depth)


def _hands_on(review: Review, module: Module, call: ast.AST, node: ast.expr, depth: int) -> bool:
    """Whether a function of the program that a call may run puts something into what it is handed."""
    if not isinstance(call, ast.Call):
        return False
    program = review.after
    for function in program.callees(module, call):
        given = program.arguments(function, call) if depth < DEEPEST else None
        if given is None:
            return True
        for name in (p for p, value in given.items() if value is node):
            added = any(isinstance(b, ast.AugAssign) for b in function.scope.bindings.get(name, ()))
            reads = _read(function.scope, name)
            if added or any(_may_fill(review, function.module, n, depth + 1) for n in reads):
                return True
    return False


def _made(review: Review, module: Module, value: ast.expr) -> bool:
    """Whether torch makes a tensor of numbers, which is then moved or cast."""
    value = syntax.chained(value, MOVED | REDUCED)
    if not isinstance(value, ast.Call) or review.after.dotted(module.scope_of(value), value.func) not in MADE:
        return False
    given = (n for a in value.args for n in syntax.walk(a))
    return not any(isinstance(n, (ast.Name, ast.Attribute, ast.Call)) for n in given)
