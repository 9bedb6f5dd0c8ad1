"""The loss scale that `amp.initialize` was given, as far as its text tells."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from amp_migrate.reading.program.logic import bracketed
from amp_migrate.reading.units.unit import Init
from amp_migrate.reading.values.analysis import Values

DYNAMIC = frozenset((None, "dynamic"))


def static_scale(init: Init) -> float | ast.expr | None:
    """The loss scale of a unit: a number that never changes, None for dynamic, or the expression that decides."""
    node = init.arguments.get("loss_scale")
    values = init.project.once(Values)
    found = values.fixed(init.module, node) if node is not None else (None,)
    if found is None and isinstance(node, ast.Name) and (passed := values.constants(init.module, node)) is not None:
        found = passed if passed <= DYNAMIC else None  # a parameter that every call leaves alone
    try:
        scales = {_scale(init, value) for value in found or ()}
    except (TypeError, ValueError):
        scales = set()
    return scales.pop() if len(scales) == 1 else node


def _scale(init: Init, value: Any) -> float | None:
    """What Apex makes of a loss scale. Raises TypeError or ValueError where it makes nothing of it."""
    if value is None and init.only("opt_level") == "O3":
        return 1.0
    return pinned(init) if value in (None, "dynamic") else float(value)


def pinned(init: Init) -> float | None:
    """The one value that the bounds of a dynamic scale leave it, where they are the same number."""
    bounds = [init.arguments.get(name) for name in ("min_loss_scale", "max_loss_scale")]
    low, high = (number(bound) if bound is not None else None for bound in bounds)
    return low if low == high else None


def settle_branches(inits: Sequence[Init]) -> None:
    """`if args.loss_scale == 0: initialize(loss_scale="dynamic") else: initialize(loss_scale=args.loss_scale)`: one
    scaler takes the place of both calls, whose scale is a choice between the two."""
    together: dict[ast.If, list[Init]] = {}
    for init in inits:
        for parent in init.module.ancestors(init.stmt):
            if parent in init.module.scopes:
                break
            if isinstance(parent, ast.If):
                together.setdefault(parent, []).append(init)
    for branching, held in sorted(together.items(), key=lambda pair: -pair[0].lineno):  # inner ones come first
        body = [i for i in held if i.module.inside_of(i.stmt, branching.body)]
        other = [i for i in held if i not in body]
        if not body or not other or _same(body[0], other[0]):
            continue
        if all(_same(i, body[0]) for i in body) and all(_same(i, other[0]) for i in other):
            first, second = body[0], other[0]
            one, two = _written(first, _given(first)), _written(second, _given(second))
            test = _written(first, branching.test)
            for init in held:
                init.arguments["loss_scale"] = init.module.imagine(f"{one} if {test} else {two}", branching.test)


def _given(init: Init) -> ast.expr:
    """The loss scale that a call asks for, or gets without asking."""
    given = init.arguments.get("loss_scale")
    return ast.Constant(1.0 if init.only("opt_level") == "O3" else None) if given is None else given


def _same(one: Init, two: Init) -> bool:
    return _normal(_given(one)) == _normal(_given(two))


def _normal(scale: ast.expr) -> str:
    """A scale to be compared: a dynamic one may be asked for by its name, or not at all."""
    dynamic = isinstance(scale, ast.Constant) and scale.value in (None, "dynamic")
    return "None" if dynamic else ast.dump(scale)


def _written(init: Init, node: ast.expr) -> str:
    text = init.module.source(node) if hasattr(node, "lineno") else ast.unparse(node)
    return bracketed(node, text)


def number(node: ast.expr) -> float | None:
    """The value of a number, or of arithmetic on numbers such as `2.**16`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value)
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Pow, ast.Mult, ast.LShift)):
        return None
    left, right = number(node.left), number(node.right)
    if left is None or right is None or right > 64:
        return None
    if isinstance(node.op, ast.Mult):
        return left * right
    return left * 2.0**right if isinstance(node.op, ast.LShift) else float(left**right)
