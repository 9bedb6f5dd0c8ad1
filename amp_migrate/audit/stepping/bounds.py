"""What the norm of gradients is clipped to, and how often it was multiplied by the loss scale."""

from __future__ import annotations

import ast

from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.targets import given_to
from amp_migrate.audit.review import Review
from amp_migrate.audit.ways.within import tests_around

_CLIPS = frozenset({"clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grad_value"})
_BOUNDS = frozenset({"max_norm", "clip_value"})


def bound(call: ast.Call) -> ast.expr | None:
    """The bound that a clip of torch's is given."""
    if syntax.last(call.func) not in _CLIPS:
        return None
    given = [k.value for k in call.keywords if k.arg in _BOUNDS] or call.args[1:2]
    return given[0] if given else None


def left_its_branch(review: Review, module: Module, clip: ast.AST) -> bool:
    """Whether the clips of a function stood under a test that the step stands under still, and a clip to a scaled bound does
    not: it clips after every backward what was clipped once."""
    change, function = review.changes.get(module.path), module.function_around(clip)
    if change is None or times_scale(module, clip) != 1:
        return False
    inside = [n for n, _ in module.method_calls("step") if module.function_around(n) is function]
    under = {syntax.text(test) for n in inside for test, _ in tests_around(module, n)}
    under -= {syntax.text(test) for test, _ in tests_around(module, clip)}
    clips = [
        n
        for name in _CLIPS
        for n in change.before.calls_named.get(name, ())
        if change.before.name_around(n) == module.name_around(clip)
    ]
    tests = [{syntax.text(test) for test, _ in tests_around(change.before, n)} for n in clips]
    return bool(under and tests) and all(under & asked for asked in tests)


@kept
def times_scale(module: Module, node: ast.AST) -> int:
    """How often the bound of a clip carries the loss scale: -1 where it is divided by it."""
    given = bound(node) if isinstance(node, ast.Call) else None
    return _times(module, given, 0) if given is not None else 0


def _times(module: Module, expr: ast.expr, depth: int) -> int:
    if isinstance(expr, ast.Call):
        if syntax.last(expr.func) == "get_scale":
            return 1
        return _times(module, expr.args[0], depth) if syntax.text(expr.func) == "float" and expr.args else 0
    if isinstance(expr, ast.BinOp):
        left, right = _times(module, expr.left, depth), _times(module, expr.right, depth)
        if isinstance(expr.op, (ast.Mult, ast.Div)):
            return left + (right if isinstance(expr.op, ast.Mult) else -right)
        return left if left == right else 0
    if isinstance(expr, ast.Name) and depth < 3:
        binder = module.scope_of(expr).binder(expr.id)
        nodes = binder.bindings[expr.id] if binder is not None else []
        given = [value for n in nodes for value, item in given_to(n, expr.id) if not item]
        return _times(module, given[0], depth + 1) if len(nodes) == len(given) == 1 else 0
    return 0
