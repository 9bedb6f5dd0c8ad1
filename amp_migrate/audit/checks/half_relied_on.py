"""Where a program relies on its weights being half, as they were under O2 and O3, that is told.

Proves: no weight is compared with what the program made half itself, and no test asks a weight whether it is half, where a
set-up may have made weights half. Weights are told by how they are read (`layer.weight`, a field that is a Parameter, what
`parameters()` gives), not by the model that they belong to: what is said holds where that was set up. Not looked at:
what nothing mentions that a run with mixed precision comes to. What is half by hand and meets a weight in a product,
`by_hand.py` finds for `precision.py` and `half_inputs.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.dtypes import HALF_TYPES, KEEPING
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.mentioned import in_idle_class, in_runs
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP547",
        title="the program relies on weights being half",
        construct="a weight",
        apex="O2 and O3 made the weights of a model half: they were equal to a half copy of themselves, and their dtype said so.",
        native="Weights stay float32 under autocast. Compare a copy of the same dtype, and ask the switch of mixed precision instead "
        "of a weight.",
        why="A float32 weight differs from its half copy by its rounding: an assertion that both are equal fails, and a test of its "
        "dtype takes the other way.",
    ),
)
COMPARING = frozenset("eq ne equal allclose isclose array_equal".split())
JOINING = frozenset("cat stack concat".split())
HALF_NAMES = HALF_TYPES | {"torch.HalfTensor", "torch.cuda.HalfTensor"}
GIVING = frozenset({"parameters", "named_parameters"})


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not both.removed:
        return
    for module in both.after.modules:
        if not module.words & {"half", "float16", "HalfTensor"} or not both.near_setups(module):
            continue
        if both.floats(module) or both.asks(module):
            asked = "" if both.floats(module) else ", where O2 or O3 is asked for"
            yield from _compared(both, module, asked)
            yield from _asked(both, module, asked)


def _nodes(both: Mixed, module: Module) -> Iterator[ast.AST]:
    """What stands in a file, but for classes and functions that no run with mixed precision comes to."""
    for stmt in module.tree.body:
        definition = isinstance(stmt, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if not definition or in_runs(both).definition(stmt.name):  # type: ignore[attr-defined]
            yield from syntax.walk(stmt)


def _compared(both: Mixed, module: Module, asked: str) -> Iterator[Doubt]:
    """`torch.eq(self.table.weight, self.kept)`, of which `self.kept = table.half()`."""
    for node in _nodes(both, module):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            sides = [node.left, node.comparators[0]]
        elif isinstance(node, ast.Call) and syntax.last(node.func) in COMPARING:
            own = (
                isinstance(node.func, ast.Attribute)
                and both.review.after.dotted(module.scope_of(node), node.func) is None
            )
            sides = [*([node.func.value] if own and isinstance(node.func, ast.Attribute) else []), *node.args][:2]
        else:
            continue
        for weight, other in (sides, sides[::-1]) if len(sides) == 2 else ():
            scope = module.scope_of(node)
            made = _half(both, module, other) if _is_weight(both, module, weight) else None
            if (
                made is not None
                and both.by_hand.half(scope, weight, {}) is None
                and not _is_weight(both, module, other)
            ):
                at = f"{made[0].path}:{both.review.line(*made)}"
                message = (
                    f"{syntax.text(weight)} is compared with {syntax.text(other)}, which is made half ({at}): in a model that Apex "
                    f"had made half both were so{asked}. The weight is float32 now, and differs from its rounding, or what compares "
                    "them raises. Compare it with a copy that is not made half"
                )
                yield both.review.doubt(module, node, "AMP547", syntax.text(weight), message, "review")
                break


def _asked(both: Mixed, module: Module, asked: str) -> Iterator[Doubt]:
    """`self.head.weight.dtype == torch.half`, `isinstance(p, torch.cuda.HalfTensor)`."""
    for node in _nodes(both, module):
        weight: ast.expr | None = None
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = [node.left, node.comparators[0]]
            types = [s for s in sides if any(_is_half_type(both, module, t) for t in _types(s))]
            others = [s for s in sides if s not in types]
            weight = _typed(others[0]) if types and others else None
        elif isinstance(node, ast.Call) and syntax.text(node.func) == "isinstance" and len(node.args) == 2:
            types = [t for t in _types(node.args[1]) if _is_half_type(both, module, t)]
            weight = node.args[0] if types else None
        if weight is None or _only_widened(module, node) or in_idle_class(both, module, node):
            continue
        if _is_weight(both, module, weight):
            message = (
                f"{syntax.text(node)} asks a weight whether it is half: in a model that Apex had made half it was{asked}, and it is "
                "not now. Ask what switches mixed precision on where that is meant"
            )
            yield both.review.doubt(
                module, node, "AMP547", syntax.text(weight), message, "review" if _raises(module, node) else "look"
            )


def _only_widened(module: Module, test: ast.AST) -> bool:
    """Whether what follows where something is half only makes it float32, as it is now: `if p.dtype == torch.half: p.data =
    p.data.float()`."""
    around = module.parents.get(test)
    if isinstance(around, ast.IfExp):
        return _widens(around.body, around.orelse)
    if not isinstance(around, ast.If) or around.test is not test or around.orelse:
        return False
    return all(isinstance(s, ast.Assign) and _widens(s.value, s.targets[0]) for s in around.body)


def _widens(value: ast.expr, of: ast.expr) -> bool:
    """Whether a value is another in float32."""
    cast = syntax.cast_to_float(value) if isinstance(value, ast.Call) else None
    return cast is not None and syntax.text(cast) == syntax.text(of)


def _is_half_type(both: Mixed, module: Module, expr: ast.expr) -> bool:
    """`torch.half`, and its name as `p.type()` gives it."""
    if isinstance(expr, ast.Constant):
        return expr.value in HALF_NAMES
    return both.review.after.dotted(module.scope_of(expr), expr) in HALF_NAMES


def _half(both: Mixed, module: Module, expr: ast.expr) -> tuple[Module, ast.expr] | None:
    """Where a value is made half by hand, also one that a loop takes out of what was made so item by item."""
    scope = module.scope_of(expr)
    if (made := both.by_hand.half(scope, expr, {})) is not None or not isinstance(expr, ast.Name):
        return made
    owner = scope.binder(expr.id)
    for stmt in owner.bindings[expr.id] if owner is not None else ():
        held = _turned(stmt, expr.id)
        for origin in both.review.values_after.origins(scope, held) if held is not None else ():
            if isinstance(origin.node, (ast.ListComp, ast.GeneratorExp)):
                there = origin.module.scope_of(origin.node.elt)
                if (made := both.by_hand.half(there, origin.node.elt, {})) is not None:
                    return made
    return None


def _turned(stmt: ast.AST, name: str) -> ast.expr | None:
    """What a loop takes the items of that a name has in turn: `b` of `for x, y in zip(a, b)`, for `y`."""
    if not isinstance(stmt, (ast.For, ast.comprehension)):
        return None
    target, call = stmt.target, stmt.iter
    if isinstance(target, ast.Tuple) and isinstance(call, ast.Call) and syntax.text(call.func) == "zip":
        pairs = zip(target.elts, call.args, strict=False)
        return next((given for t, given in pairs if isinstance(t, ast.Name) and t.id == name), None)
    return call if isinstance(target, ast.Name) else None


def _raises(module: Module, test: ast.AST) -> bool:
    """Whether a test is asserted, or one of its ways raises at once."""
    stmt = module.statement(test)
    raised = isinstance(stmt, ast.If) and any(isinstance(s, ast.Raise) for s in (*stmt.body, *stmt.orelse))
    return isinstance(stmt, ast.Assert) or raised


def _types(expr: ast.expr) -> list[ast.expr]:
    return expr.elts if isinstance(expr, (ast.Tuple, ast.List, ast.Set)) else [expr]


def _typed(expr: ast.expr) -> ast.expr | None:
    """What is asked for its dtype: `w` of `w.dtype` and of `w.type()`."""
    if isinstance(expr, ast.Attribute) and expr.attr == "dtype":
        return expr.value
    called = expr.func if isinstance(expr, ast.Call) and not expr.args else None
    return called.value if isinstance(called, ast.Attribute) and called.attr == "type" else None


def _is_weight(both: Mixed, module: Module, expr: ast.expr, depth: int = 5) -> bool:
    """Whether an expression is a weight, or a part of one."""
    if isinstance(expr, ast.Subscript):
        return depth > 0 and _is_weight(both, module, expr.value, depth - 1)
    if isinstance(expr, ast.Call):
        if syntax.text(expr.func) == "next" and expr.args:
            return any(syntax.last(c.func) in GIVING for c in syntax.every(expr, ast.Call))
        if (
            syntax.last(expr.func) in JOINING
            and expr.args
            and isinstance(expr.args[0], (ast.ListComp, ast.GeneratorExp))
        ):
            return _is_weight(both, module, expr.args[0].elt, depth - 1)
        func = expr.func
        return isinstance(func, ast.Attribute) and func.attr in KEEPING and _is_weight(both, module, func.value)
    scope = module.scope_of(expr)
    if isinstance(expr, ast.Name):
        owner = scope.binder(expr.id)
        given = owner.bindings[expr.id] if owner is not None else []
        return (
            bool(given) and depth > 0 and all(_gives_weight(both, module, stmt, expr.id, depth - 1) for stmt in given)
        )
    if not isinstance(expr, ast.Attribute):
        return False
    if expr.attr in ("data", "T"):
        return _is_weight(both, module, expr.value, depth)
    if expr.attr in ("weight", "bias"):
        return True
    owner_class = both.review.after.is_self(scope, expr.value)
    if owner_class is None or not both.review.after.is_network(owner_class):
        return False
    fields = both.review.values_after.own_fields(both.review.after.family_up(owner_class), expr.attr)
    values = [value for _, value, _ in fields]
    return bool(values) and all(isinstance(v, ast.Call) and syntax.last(v.func) == "Parameter" for v in values)


def _gives_weight(both: Mixed, module: Module, stmt: ast.AST, name: str, depth: int) -> bool:
    if isinstance(stmt, (ast.For, ast.comprehension)):
        held = _turned(stmt, name)
        held = stmt.iter if held is None and "named_parameters" in syntax.text(stmt.iter) else held
        return held is not None and any(syntax.last(c.func) in GIVING for c in syntax.every(held, ast.Call))
    return isinstance(stmt, ast.Assign) and _is_weight(both, module, stmt.value, depth)
