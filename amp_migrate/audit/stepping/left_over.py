"""What a step leaves in `.grad`, divided by the scale, and the next scaled backward adds to: told where no zero_grad comes between.

Apex O1 put what stood in .grad aside, unscaled the new gradient alone and added both, as float32 does.
"""

from __future__ import annotations

import ast

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.stepping.machine import KEPT, Place


def added_up(review: Review, module: Module) -> bool:
    """Whether Apex added to what a step had left, as in float32: all but O2, whose step cleared its masters, and the handle of
    `amp.init`, which divided all of a gradient as a scaler does."""
    if any(True for _ in review.calls_before("apex.amp.init")):
        return False
    both = mixed(review)
    return both.patches(module) or not both.gave_floats(module)


def only_where_caught(place: Place, tags: set[str]) -> bool:
    """Whether gradients are cleared behind a step in its own block, so that only what is raised between the two, and caught
    around both, leaves them: without scaler.update(), which is told of as AMP234."""
    module, stmt = place.module, place.module.statement(place.node)
    cleared = False
    for later in module.following(stmt):
        cleared = isinstance(later, ast.Expr) and "zero_grad" in syntax.text(later)
        if cleared or any(isinstance(n, (ast.Continue, ast.Break, ast.Return)) for n in syntax.walk(later)):
            break
    tries = [a for a in module.ancestors(stmt) if isinstance(a, ast.Try) and a.handlers]
    behind = [n for a in tries for s in (*a.handlers, *a.finalbody) for n in syntax.walk(s) if isinstance(n, ast.Call)]
    updated = any(syntax.last(call.func) == "update" for call in behind)
    return cleared and bool(tries) and not updated and not tags - {KEPT, "ok"}


def left_over(review: Review, place: Place, tags: set[str], before: bool) -> Doubt:
    """What is told of gradients that an earlier step, or unscale_, has divided by the scale, and that a backward added to."""
    tests = sorted(tags - {KEPT, "ok"})
    where = f" where {' or '.join(tests)} leaves that out" if tests and KEPT not in tags else " on some path"
    message = (
        f"this step may meet what an earlier one left in .grad: nothing clears it{where}. Apex added to it; a scaler divides it by "
        "the scale again, so that it counts no more"
    )
    path, line = place.module.path, getattr(place.node, "lineno", 1)
    if before or path not in review.changes:
        return Doubt(path, line, "AMP224", "optimizer.zero_grad", message, "look", ("AMP224",))
    near = _stepped_before(review, place, line)
    return Doubt(path, near[0], "AMP224", "optimizer.zero_grad", message, "look", ("AMP224",), near[1:])


def _stepped_before(review: Review, place: Place, line: int) -> tuple[int, int, int]:
    """The line before of a step, and the first and the last one of the function around it."""
    change, now = review.changes[place.module.path], place.module.function_around(place.node)
    was = change.function_before(now) if now is not None else None
    around = was.node if was is not None else change.before.tree
    given = [*place.node.args, *(k.value for k in place.node.keywords)] if isinstance(place.node, ast.Call) else []
    steps = [
        call.lineno
        for call in syntax.every(around, ast.Call)
        if isinstance(f := call.func, ast.Attribute) and f.attr == "step"
        if any(syntax.text(f.value) == syntax.text(a) for a in given)
    ]
    stmt, stood = place.module.statement(place.node), review.statement_before(place.module, place.node)
    if stood is not None and syntax.text(stood[1]) == syntax.text(stmt):  # it went through a scaler already
        steps = [stood[1].lineno]
    at = min(steps, key=lambda n: abs(n - review.line(place.module, place.node)), default=line)
    if was is not None:
        return at, was.node.lineno, was.node.end_lineno or at
    return at, 1, change.before.text.count("\n") + 1
