"""Operations outside the regions that Apex ran in float32, on values that leave a region: `.float()` is written there.

Apex: https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use
Native: https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.regions.place import Regions
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.regions.half_values import HalfValues

NATIVE = "https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior"
CODES = (
    Code(
        "AMP522",
        "An operation outside the regions computes in float32",
        "torch.nn.functional.softmax",
        apex="O1 patches torch for the whole process: softmax, exp, sums, norms and losses run in float32 wherever they stand. O2 "
        "and O3 give the model's outputs in float32.",
        native="Autocast ends with its region: outside, an operation runs in the dtype of what it is given.",
        why="In float16 probabilities tie, sums stop growing and exponentials overflow. Inside the region autocast runs these "
        "in float32 itself; what leaves it is cast where it is used.",
        links=("https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use", NATIVE),
        examples=(Example("probs = F.softmax(output, dim=1)", "probs = F.softmax(output.float(), dim=1)"),),
    ),
)

# On O1's list of float32 operations: those of torch and of tensors, and those of torch.nn.functional alone.
OPERATIONS = frozenset(
    "acos asin cosh erfinv exp expm1 log log10 log2 reciprocal rsqrt sinh tan cumsum cumprod sum prod norm pow dist renorm "
    "std var".split()
)
FUNCTIONAL = frozenset(
    "softmax log_softmax softmin softplus layer_norm group_norm normalize cosine_similarity mse_loss l1_loss "
    "smooth_l1_loss kl_div poisson_nll_loss binary_cross_entropy_with_logits soft_margin_loss hinge_embedding_loss "
    "cross_entropy nll_loss multi_margin_loss multilabel_soft_margin_loss triplet_margin_loss cosine_embedding_loss "
    "margin_ranking_loss gelu".split()
)
COUNTING = frozenset("sum prod cumsum cumprod pow".split())  # whole numbers have these as well
# What rounds half values once more: what comes of it differs by the dtype that it computes in.
ROUNDING = frozenset("sigmoid softmax log_softmax tanh exp log sqrt normalize logsigmoid".split())
F = "torch.nn.functional."


def apply(m: Migration, module: Module, found: Regions, half: HalfValues) -> None:
    """Cast what the operations of one scope are given that stand outside its regions."""
    promised = any(i.only("opt_level") in ("O2", "O3") for i in m.unit.inits)
    scaled = {n for loss in m.unit.losses for n in ast.walk(loss.loss)}  # see `half_losses.py`
    calls = [n for s in found.scope.body for n in ast.walk(s) if isinstance(n, ast.Call) and n not in scaled]
    for node in sorted(calls, key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0)):  # what is given, first
        if module.scope_of(node) is not found.scope or half.stands_inside(node):
            continue
        if _only_differentiated(module, node):
            continue
        values = [v for v in _computed_from(module, node, promised) if _leaves(module, node, v, half)]
        for value in values:
            m.edit(module).insert("after", value, ".float()")
        if values:
            half.float_calls.add(node)
            func = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            given = " and ".join(module.source(v) for v in values)
            message = f"{func} computes from {given} in float32, as it did under Apex"
            m.output.note(module, node, "AMP522", ast.unparse(node.func), message, "as-is")


def _only_differentiated(module: Module, call: ast.Call) -> bool:
    """Whether torch.autograd.grad is given what an operation comes to: its gradient is the same in either dtype."""
    parent = module.parents.get(call)
    around = module.parents.get(parent) if isinstance(parent, ast.keyword) and parent.arg == "outputs" else parent
    return isinstance(around, ast.Call) and module.qualify(around.func) == "torch.autograd.grad"


def _leaves(module: Module, call: ast.Call, value: ast.expr, half: HalfValues) -> bool:
    """Whether a value is certainly one floating tensor that leaves a region in half precision."""
    if not isinstance(value, (ast.Name, ast.Subscript, ast.Attribute, ast.Call)):
        return False
    if not half.may_be(value, outputs=True) or not half.is_tensor(value):
        return False
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else (module.qualify(func) or "").rpartition(".")[2]
    return name not in COUNTING or half.is_floating(value)


def _computed_from(module: Module, call: ast.Call, promised: bool) -> list[ast.expr]:
    """What an operation computes from that ran in float32: `x` of `F.softmax(x, dim=1)` and of `x.exp()`. `promised`: all
    did, for O2 and O3 gave the model's outputs in it."""
    func = call.func
    operations = OPERATIONS | ROUNDING | {"mean"} if promised else OPERATIONS
    if isinstance(func, ast.Attribute) and func.attr in operations and module.qualify(func) is None:
        return [_apart(func.value)]
    name = module.qualify(func) or ""
    last = name.rpartition(".")[2]
    if not (name.startswith(F) and last in FUNCTIONAL) and not (name == f"torch.{last}" and last in operations):
        return []
    return [_apart(value) for value in (*call.args[:2], *(k.value for k in call.keywords if k.arg == "input"))]


def _apart(value: ast.expr) -> ast.expr:
    """A value without the number that is added to it or multiplied with it: `output` of `output / 2`."""
    if isinstance(value, ast.BinOp) and isinstance(value.right, ast.Constant):
        return _apart(value.left)
    return _apart(value.right) if isinstance(value, ast.BinOp) and isinstance(value.left, ast.Constant) else value
