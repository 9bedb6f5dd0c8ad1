"""A loss scale that Apex was given as a number is still what some scaler is held at.

For each set-up that went and named a static scale, by a number or by something that is read: what `scaler.update` is given
anywhere, or the start of a scaler that never grows, may be that number or comes of what was read. And where a set-up let the
scale move, some scaler may be updated with nothing. Values are followed through names, fields, parameters and choices.

Cannot prove that each run holds its own scale, only that the program has each; nor anything of what it cannot follow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import FP16_OPTIMIZER, INITIALIZE, SCALE, argument
from amp_migrate.audit.stepping.objects import Objects
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.off_instead import GRAD_SCALER
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP240",
        title="a static loss scale would not be held",
        construct="scaler.update",
        apex="`loss_scale=N` and `static_loss_scale=N` never change.",
        native="A scaler moves, unless each `update(N)` is given the number.",
        why="A scale that starts elsewhere or moves makes other steps overflow, or none: the training is another one.",
    ),
)

DYNAMIC = (None, "dynamic")
UNKNOWN = "<not followed>"
_DEEPEST = 8

Leaf = object  # a number, None for dynamic, or the name of what is read


def check(review: Review) -> Iterable[Doubt]:
    if review.wish.dtype == "bfloat16" or not any("GradScaler" in m.words for m in review.after.modules.values()):
        return
    gone = [asked for asked in _asked(review) if asked.module.path in review.changes]
    calls = list(_calls(review)) if gone else []
    if not calls:
        return
    updates = [(module, _given(call)) for module, call in calls]
    after, before = _Leaves(review.values_after), _Leaves(review.values_before)
    starts = _never_growing(review)
    held = {leaf for m, given in (*updates, *starts) for leaf in after.of(m.scope_of(given or m.tree), given)}
    if UNKNOWN in held:
        return
    own = all(_was_there(review, m, call) for m, call in calls)
    for asked in gone:
        leaves = before.of(asked.module.scope_of(asked.call), asked.scale)
        static = leaves - {None}
        if UNKNOWN in leaves or 1.0 in static or static & held or (not static and None in held):
            continue
        called = f"{syntax.text(asked.call.func)} of line {asked.call.lineno}"
        if static and asked.scale is not None:
            message = (
                f"the loss scale {syntax.text(asked.scale)} of {called} would not be held: no update() is given it"
            )
        elif asked.moves:
            message = f"the loss scale of {called} moved, and each update() would be given a number, which holds it"
        else:
            continue
        change = review.changes[asked.module.path]
        if own:
            message = message.replace("would not be held", "is not held on the native side, which stays")
            message = message.replace("would be given", "of the native side, which stays, is given")
            yield Doubt(change.path, asked.call.lineno, "AMP240", "loss_scale", message, "look")
            continue
        told = next((g for m, g in updates if m is change.after and g is not None), change.after.tree.body[0])
        yield review.doubt(change.after, told, "AMP240", "scaler.update", message)


class _Asked(NamedTuple):
    """A set-up with the scale that it asks for; `moves`: it is a dynamic one for sure, where it is no number."""

    module: Module
    call: ast.Call
    scale: ast.expr | None
    moves: bool


def _asked(review: Review) -> Iterator[_Asked]:
    """Set-ups that are not in the program after."""
    left = {(module.path, syntax.text(call)) for module, call, _ in review.calls_after(INITIALIZE, *FP16_OPTIMIZER)}
    dynamic = {s.call for s in mixed(review).removed if s.known and s.levels and s.levels <= {"O1", "O2"}}
    for module, call, name in review.calls_before(INITIALIZE, *FP16_OPTIMIZER):
        if (module.path, syntax.text(call)) in left:
            continue
        if name == INITIALIZE:
            optimizers = argument(call, "optimizers", 1)
            if not (syntax.spreads(call) or optimizers) or (
                isinstance(optimizers, (ast.List, ast.Tuple)) and not optimizers.elts
            ):
                continue  # nothing is stepped: it has no say in a loss scale
            bounds = any(k.arg in ("min_loss_scale", "max_loss_scale", None) for k in call.keywords)
            private = "_amp_state" in module.words or optimizers is None
            moves = call in dynamic and not bounds and not private
            yield _Asked(module, call, argument(call, "loss_scale", SCALE), moves)
            continue
        switch = argument(call, "dynamic_loss_scale", 2)
        if switch is None or syntax.is_false(switch):
            yield _Asked(module, call, argument(call, "static_loss_scale", 1) or ast.Constant(1.0), False)
        else:
            yield _Asked(module, call, None, isinstance(switch, ast.Constant))


def _calls(review: Review) -> Iterator[tuple[Module, ast.Call]]:
    """The calls of the `update` of anything that may be a scaler."""
    objects = Objects(review.values_after)
    for module in review.after.modules.values():
        for call, holder in module.method_calls("update"):
            ref = objects.ref(module.scope_of(call), holder, {})
            if ref.role == "scaler" or "scaler" in syntax.text(holder).lower():
                yield module, call


def _given(call: ast.Call) -> ast.expr | None:
    """What one of these is given."""
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "new_scale")]
    return given[0] if given else None


def _was_there(review: Review, module: Module, call: ast.Call) -> bool:
    """Whether the program had an update itself: its native side."""
    was = review.statement_before(module, call)
    return was is not None and syntax.text(was[1]) == syntax.text(module.statement(call))


def _never_growing(review: Review) -> Iterator[tuple[Module, ast.expr]]:
    """What scalers start from whose scale cannot grow."""
    for module, call, name in review.calls_after(*GRAD_SCALER):
        start = argument(call, "init_scale", GRAD_SCALER[name] - 4)  # before `enabled`
        if start is not None and any(k.arg in ("growth_factor", "growth_interval", None) for k in call.keywords):
            yield module, start


class _Leaves:
    """What a loss scale may come down to."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def of(self, scope: Scope, expr: ast.expr | None, depth: int = 0) -> set[Leaf]:
        if expr is None:
            return {None}
        if depth > _DEEPEST:
            return {UNKNOWN}
        if (number := _number(expr)) is not None:
            return {number}
        if isinstance(expr, ast.Constant):
            return {None} if expr.value in DYNAMIC else set()
        if isinstance(expr, ast.IfExp):
            return self.of(scope, expr.body, depth + 1) | self.of(scope, expr.orelse, depth + 1)
        if isinstance(expr, (ast.BoolOp, ast.BinOp)):
            parts = expr.values if isinstance(expr, ast.BoolOp) else [expr.left, expr.right]
            return {leaf for part in parts for leaf in self.of(scope, part, depth + 1)}
        if isinstance(expr, ast.Call):
            if (
                not isinstance(expr.func, ast.Name)
                or expr.func.id not in ("float", "int", "str")
                or len(expr.args) != 1
            ):
                return {UNKNOWN}
            return self.of(scope, expr.args[0], depth + 1)
        if not isinstance(expr, (ast.Name, ast.Attribute, ast.Subscript)):
            return {UNKNOWN}
        return self._read(scope, expr, depth)

    def _read(self, scope: Scope, expr: ast.Name | ast.Attribute | ast.Subscript, depth: int) -> set[Leaf]:
        found: set[Leaf] = set()
        if isinstance(expr, ast.Subscript):
            key = expr.slice
            found.add(key.value if isinstance(key, ast.Constant) else UNKNOWN)
        elif isinstance(expr, ast.Attribute) and self.values.program.is_self(scope, expr.value) is None:
            found.add(expr.attr)  # an option, or a field of what is handed around
        for origin in self.values.origins(scope, expr):
            node = origin.node
            if node is expr or not isinstance(node, ast.expr):
                # What a parameter is given out of sight has another name wherever it is handed on.
                followed = isinstance(expr, (ast.Name, ast.Attribute)) and not isinstance(node, ast.arg)
                found.add(syntax.last(expr) if followed else UNKNOWN)
            elif isinstance(node, (ast.Name, ast.Attribute)):
                found.add(syntax.last(node))
            else:
                found |= self.of(origin.module.scope_of(node), node, depth + 1)
        return found or {UNKNOWN}


def _number(expr: ast.expr) -> float | None:
    """A number, or the text of one."""
    try:
        value = ast.literal_eval(expr)
    except (ValueError, TypeError, SyntaxError, MemoryError):
        value = _power(expr)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _power(expr: ast.expr) -> float | None:
    if not isinstance(expr, ast.BinOp) or not isinstance(expr.op, (ast.Pow, ast.Mult)):
        return None
    left, right = _number(expr.left), _number(expr.right)
    if left is None or right is None or abs(right) > 1e6:
        return None
    return left * right if isinstance(expr.op, ast.Mult) else left**right if right < 100 else None
