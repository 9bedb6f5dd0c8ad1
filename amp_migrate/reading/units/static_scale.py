"""The loss scale that `amp.initialize` was given, as far as its text tells."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from amp_migrate.reading.program.logic import bracketed, truth
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.units.unit import Init
from amp_migrate.reading.values.analysis import Values

DYNAMIC = frozenset((None, "dynamic"))


def static_scale(init: Init) -> float | ast.expr | None:
    """The loss scale of a unit: a number that never changes, None for dynamic, or the expression that decides."""
    node = asked_scale(init)
    values = init.project.once(Values)
    found = values.fixed(init.module, node) if node is not None else (None,)
    if found is None and isinstance(node, ast.Name) and (passed := values.constants(init.module, node)) is not None:
        found = passed if passed <= DYNAMIC else None  # a parameter that every call leaves alone
    try:
        scales = {_scale(init, value) for value in found or ()}
    except (TypeError, ValueError):
        scales = set()
    return scales.pop() if len(scales) == 1 else node


def asked_scale(init: Init, *, o0: bool = False) -> ast.expr | None:
    """The loss scale that is asked for at any level but O0, or at that: of `1 if level == "O0" else "dynamic"`, "dynamic"."""
    node, enabled, level = (init.arguments.get(name) for name in ("loss_scale", "enabled", "opt_level"))

    def told(test: ast.expr) -> bool | None:
        if enabled is not None and ast.dump(test) == ast.dump(enabled):
            return True
        if level is None or not isinstance(test, ast.Compare) or ast.dump(test.left) != ast.dump(level):
            return None
        op, other = test.ops[0], test.comparators[0]
        at_o0 = len(test.ops) == 1 and isinstance(other, ast.Constant) and other.value == "O0"
        return isinstance(op, ast.Eq) is o0 if at_o0 and isinstance(op, (ast.Eq, ast.NotEq)) else None

    while isinstance(node, ast.IfExp) and (on := truth(node.test, told)) is not None:
        node = node.body if on else node.orelse
    return node


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


def copied(init: Init, name: ast.expr) -> ast.Attribute | None:
    """`args.scale` of a variable given `float(args.scale) if args.scale != "dynamic" else "dynamic"`, in whatever form: Apex
    would have made the same of it, and it may be read where the variable is not."""
    module, scope = init.module, init.site.scope
    if not isinstance(name, ast.Name):
        return None
    bindings = scope.bindings.get(name.id, ())
    stmts = [module.statement(b) for b in bindings]
    if not stmts or scope.is_module:
        return None
    sources: dict[str, ast.expr] = {}
    for stmt in stmts:
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            return None
        for test, value in _choices(module, stmt):
            source = _number_of(value)
            if source is None and isinstance(value, ast.Constant) and value.value in DYNAMIC:
                source = _asked_whether_dynamic(test)
            if source is None:
                return None
            sources[ast.dump(source)] = source
    source = next(iter(sources.values())) if len(sources) == 1 else None
    return source if isinstance(source, ast.Attribute) and isinstance(source.value, ast.Name) else None


def _choices(module: Module, stmt: ast.Assign) -> list[tuple[ast.expr | None, ast.expr]]:
    """What an assignment may give, each with the test that decides."""
    if isinstance(stmt.value, ast.IfExp):
        return [(stmt.value.test, stmt.value.body), (stmt.value.test, stmt.value.orelse)]
    around = module.parents.get(stmt)
    return [(around.test if isinstance(around, ast.If) else None, stmt.value)]


def _number_of(value: ast.expr) -> ast.expr | None:
    """`args.scale` of itself, or of `float(args.scale)`."""
    cast = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "float"
    if isinstance(value, ast.Call):
        return value.args[0] if cast and len(value.args) == 1 and not value.keywords else None
    return value if isinstance(value, ast.Attribute) else None


def _asked_whether_dynamic(test: ast.expr | None) -> ast.expr | None:
    """`args.scale` of a test like `args.scale != "dynamic"`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    compared = test.comparators[0]
    plain = isinstance(test.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot)
    return test.left if plain and isinstance(compared, ast.Constant) and compared.value in DYNAMIC else None


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
