"""Operations outside the regions that Apex ran in float32, on values that leave a region: `.float()` is written there.

Apex: https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use
Native: https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast
from typing import TypeGuard

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.regions.place import Regions
from amp_migrate.reading.values.operations import FLOAT_TYPES, FUNCTIONAL_IN_APEX, TORCH_IN_APEX
from amp_migrate.reading.values.reaching import reaching
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions.casting import CASTABLE, ROUNDING, apart, passed_on, side, write_float
from amp_migrate.rules.regions.half_values import HalfValues
from amp_migrate.rules.regions.own_halves import make_float
from amp_migrate.rules.regions.promised import Promised
from amp_migrate.rules.regions.shown import KEEPING

NATIVE = "https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior"
CODES = (
    Code(
        "AMP522",
        "An operation outside the regions computes in float32",
        "torch.nn.functional.softmax",
        apex="O1 patches torch for the whole process: softmax, exp, sums, norms and losses run in float32 wherever they stand, and "
        "products take float16 and float32 together. O2 and O3 give the model's outputs in float32.",
        native="Autocast ends with its region: outside, an operation runs in the dtype of what it is given, and a product of "
        "float16 and float32 raises.",
        why="In float16 probabilities tie, sums stop growing and exponentials overflow. Inside the region autocast runs these "
        "in float32 itself; what leaves it is cast where it is used. A product that O1 ran in float16, of what a model gives "
        "and of something that is not seen to be float16, is computed in float32.",
        links=("https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use", NATIVE),
        examples=(Example("probs = F.softmax(output, dim=1)", "probs = F.softmax(output.float(), dim=1)"),),
    ),
)

COUNTING = frozenset("sum prod cumsum cumprod pow".split())  # whole numbers have these as well
# Of which the second argument is a floating tensor as well: no class numbers, no sizes.
OF_TWO = frozenset(
    "mse_loss l1_loss smooth_l1_loss kl_div cosine_similarity cosine_embedding_loss margin_ranking_loss dist "
    "binary_cross_entropy_with_logits grid_sample".split()
)
F = "torch.nn.functional."
# Functions whose first argument is one tensor for sure, and is computed from in float32 whatever it holds.
TAKE_FLOATS = frozenset(f"{F}{name}" for name in FUNCTIONAL_IN_APEX) | frozenset(
    f"torch.{name}" for name in (TORCH_IN_APEX | {"softmax", "log_softmax"}) - COUNTING
)
# What takes tensors of one dtype alone: the positions of those; the method of a tensor has the first before its name.
ALIKE: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys("matmul mm mv bmm dot vdot inner tensordot cdist cross lerp allclose isclose".split(), (0, 2)),
    **dict.fromkeys("addmm addmv addr addbmm baddbmm bilinear".split(), (0, 3)),
    "einsum": (1, None),
}
ALIKE_FUNCTIONAL: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys("linear bilinear scaled_dot_product_attention".split(), (0, 3)),
    **dict.fromkeys("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d".split(), (0, 3)),
    **dict.fromkeys(("prelu",), (0, 2)),
}
# O1 patched none of these: tensors of two dtypes raised there as well.
UNPATCHED = frozenset("einsum vdot inner tensordot cdist lerp allclose isclose scaled_dot_product_attention".split())
MADE = frozenset(f"torch.{name}" for name in "rand randn zeros ones empty full eye linspace normal".split())


def apply(m: Migration, module: Module, found: Regions, half: HalfValues) -> None:
    """Cast what the operations of one scope are given that stand outside its regions."""
    promised = any(i.only("opt_level") in ("O2", "O3") for i in m.unit.inits)
    promising = Promised(m, found, half.inside, half.cast) if promised else None
    scaled = {n for loss in m.unit.losses for n in walk(loss.loss)}  # see `half_losses.py`
    every = (n for s in found.scope.body for n in walk(s) if n not in scaled)
    operations = [n for n in every if isinstance(n, ast.Call) or _is_product(n)]
    for node in sorted(operations, key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0)):  # what is given, first
        if module.scope_of(node) is not found.scope or half.stands_inside(node):
            continue
        if _multiplied(module, node):
            _alike(m, module, node, half, promising)
            continue
        if not isinstance(node, ast.Call) or _only_differentiated(module, node):
            continue
        values = [v for v in _computed_from(module, node, promised) if _leaves(module, node, v, half)]
        if promising is not None:
            values = [v for v in values if promising.may_be(v, outputs=True)]
        values = [castable for v in values if isinstance(castable := side(half, v), CASTABLE)]
        for value in values:
            write_float(half, value)
        for value, written in passed_on(half, node, TAKE_FLOATS):
            if half.may_be(value, outputs=True) and write_float(half, value, written=written):
                message = f"{module.source(value)} goes to {ast.unparse(node.func)} in float32, which computes from it in float32"
                m.output.note(module, node, "AMP522", ast.unparse(node.func), message, "as-is")
        if values:
            half.float_calls.add(node)
            func = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            given = " and ".join(module.source(v) for v in values)
            message = f"{func} computes from {given} in float32, as it did under Apex"
            m.output.note(module, node, "AMP522", ast.unparse(node.func), message, "as-is")


def where_seen(m: Migration) -> None:
    """Cast what operations are given in whichever function, where the audit saw that to be half, and they take floats alone."""
    for module in m.project.modules:
        lines = m.mended_lines(module, "AMP522")
        for call, _ in module.calls if lines else ():
            given = _computed_from(module, call, promised=True) if call.lineno in lines else []
            open_ = (v for v in given if isinstance(v, CASTABLE) and v not in m.edit(module).insertions)
            value = next((v for v in open_ if not _is_float32(module, v)), None)
            if value is not None and called_name(call) not in COUNTING:
                make_float(m, module, value)
                by = "Apex" if called_name(call) in TORCH_IN_APEX | FUNCTIONAL_IN_APEX else "O2 and O3"
                message = f"{called_name(call)} computes from {module.source(value)} in float32, as it did under {by}"
                m.output.note(module, call, "AMP522", ast.unparse(call.func), message, "as-is")


def _is_product(node: ast.AST) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def _multiplied(module: Module, node: ast.Call | ast.BinOp) -> list[ast.expr]:
    """The tensors that an operation takes in one dtype alone."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    func, given = node.func, list(node.args)
    name = module.qualify(func) or ""
    last = name.rpartition(".")[2]
    if name.startswith(F) and last in ALIKE_FUNCTIONAL:
        first, end = ALIKE_FUNCTIONAL[last]
    elif name == f"torch.{last}" and last in ALIKE:
        first, end = ALIKE[last]
    elif name.startswith("torchvision.ops.") and last in ("nms", "batched_nms"):
        first, end = 0, 2
    elif isinstance(func, ast.Attribute) and not name and func.attr in ALIKE.keys() - {"einsum"}:
        first, end = ALIKE[func.attr]
        given.insert(0, func.value)
    else:
        return []
    found = given[first:end]
    inner = found[0].elts if len(found) == 1 and isinstance(found[0], (ast.List, ast.Tuple)) else found
    return [] if any(isinstance(value, ast.Starred) for value in inner) else inner


def _alike(
    m: Migration, module: Module, node: ast.Call | ast.BinOp, half: HalfValues, promising: Promised | None
) -> None:
    """`torch.mm(output, bank.t())`, which raises where one of them is float16 and the other is not."""
    values = [v for v in _multiplied(module, node) if not isinstance(v, ast.Constant)]
    halves = [v for v in values if half.may_be(v, outputs=True)]
    promised = promising is not None
    before = promising is None or not any(promising.may_be(v, outputs=True) for v in halves)
    if not halves or (before and len(halves) == len(values)):  # Apex ran it in half as well
        return
    called = ast.unparse(node.func) if isinstance(node, ast.Call) else "@"
    last = called.rpartition(".")[2]
    if last in UNPATCHED and all(i.levels <= {"O0", "O1"} for i in m.unit.inits):
        return
    # One that is half without being seen to be raises beside those; a field, a weight above all, is float32 in O2 and O3.
    cast = [
        v for v in values if v in halves or not (_is_float32(module, v) or (promised and isinstance(v, ast.Attribute)))
    ]
    cast = [v for v in cast if m.edit(module).insertions.keys().isdisjoint(walk(v))]
    if not cast or not all(isinstance(v, (ast.Name, ast.Subscript, ast.Attribute, ast.Call)) for v in cast):
        return
    for value in cast:
        make_float(m, module, value)
    half.float_calls.add(node)
    given = " and ".join(module.source(v) for v in halves)
    message = f"{last} computes from {given} in float32, as it did under Apex"
    if before and (promised or last not in UNPATCHED):
        alike = "" if promised else "O1 made its arguments alike, and "
        message = f"{last} computes from {given} in float32: {alike}outside of a region it raises on float16 and float32 together"
    m.output.note(module, node, "AMP522", called, message, "as-is" if promised else "look")


def _is_float32(module: Module, value: ast.expr) -> bool:
    """Whether a tensor is seen to be made float32."""
    if isinstance(value, ast.Name):
        scope = module.scope_of(value).lookup(value.id)
        bound = list(map(module.statement, reaching(scope, value))) if scope is not None else []
        return bool(bound) and all(isinstance(b, ast.Assign) and _is_float32(module, b.value) for b in bound)
    if isinstance(value, ast.Call):
        name = module.qualify(value.func) or ""
        if name in MADE:
            return not any(k.arg in ("dtype", None) for k in value.keywords)
        if name.startswith("torch.") and name.rpartition(".")[2] in KEEPING and value.args:
            return _is_float32(module, value.args[0])
        if isinstance(value.func, ast.Attribute) and not name:
            asked = {module.qualify(given) for given in (*value.args, *(k.value for k in value.keywords))}
            if value.func.attr == "float" or (value.func.attr in ("to", "type") and not asked.isdisjoint(FLOAT_TYPES)):
                return True
            return value.func.attr in KEEPING | {"cuda", "mean", "sum"} and _is_float32(module, value.func.value)
    if isinstance(value, ast.Attribute):
        return value.attr in ("T", "mT", "data") and _is_float32(module, value.value)
    return isinstance(value, ast.Subscript) and _is_float32(module, value.value)


def _only_differentiated(module: Module, call: ast.Call) -> bool:
    """Whether torch.autograd.grad is given what an operation comes to: its gradient is the same in either dtype."""
    parent = module.parents.get(call)
    around = module.parents.get(parent) if isinstance(parent, ast.keyword) and parent.arg == "outputs" else parent
    return isinstance(around, ast.Call) and module.qualify(around.func) == "torch.autograd.grad"


def _leaves(module: Module, call: ast.Call, value: ast.expr, half: HalfValues) -> bool:
    """Whether a value is certainly one floating tensor that leaves a region in half precision."""
    if not isinstance(value, (*CASTABLE, ast.BinOp)) or not half.may_be(value, outputs=True):
        return False
    if _takes_floats(module, call, value):
        return True
    if not half.is_tensor(value):
        return False
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else (module.qualify(func) or "").rpartition(".")[2]
    return name not in COUNTING or half.is_floating(value)


def _takes_floats(module: Module, call: ast.Call, value: ast.expr) -> bool:
    """Whether what a call is given is a tensor for sure, and one that is computed from in floats: a list has no softmax."""
    name = module.qualify(call.func) or ""
    if name in TAKE_FLOATS:
        first = call.args[: 2 if name.rpartition(".")[2] in OF_TWO else 1]
        return any(value is apart(given) for given in (*first, *(k.value for k in call.keywords if k.arg == "input")))
    method = call.func.attr if isinstance(call.func, ast.Attribute) and not name else ""
    return method in ("softmax", "log_softmax", "sigmoid")


def _computed_from(module: Module, call: ast.Call, promised: bool) -> list[ast.expr]:
    """What an operation computes from that ran in float32: `x` of `F.softmax(x, dim=1)` and of `x.exp()`. `promised`: all
    did, for O2 and O3 gave the model's outputs in it."""
    func = call.func
    operations = TORCH_IN_APEX | ROUNDING | {"mean"} if promised else TORCH_IN_APEX
    if isinstance(func, ast.Attribute) and func.attr in operations and module.qualify(func) is None:
        return [apart(func.value)]
    name = module.qualify(func) or ""
    last = name.rpartition(".")[2]
    if not (name.startswith(F) and last in FUNCTIONAL_IN_APEX) and not (name == f"torch.{last}" and last in operations):
        return []
    return [apart(value) for value in (*call.args[:2], *(k.value for k in call.keywords if k.arg == "input"))]
