"""Values that leave an autocast region where Apex promised float32: `.float()` is written out.

Apex: https://nvidia.github.io/apex/amp.html#o2-almost-fp16-mixed-precision (cast_model_outputs)
Native: https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.module import Module
from amp_migrate.reading.regions import Regions
from amp_migrate.rules.migration import Migration

NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.autocast"
# Uses of a value that only a tensor has.
TENSOR_METHODS = frozenset(
    "argmax argmin max min softmax log_softmax sigmoid topk sum mean sort norm std var cpu numpy "
    "data detach squeeze view "
    "reshape exp log abs clamp flatten tolist".split()
)
WHOLE_NUMBERS = frozenset("argmax argmin argsort topk max min sort long int bool gt lt ge le eq ne round".split())

CODES = (
    Code(
        "AMP503",
        "Model outputs are float32 where they leave the region",
        "cast_model_outputs",
        apex="O2 and O3 return float32 from the model's forward.",
        native="Autocast leaves outputs in the dtype of the last operation.",
        why="Metrics and losses outside the region would otherwise be computed in half precision.",
        links=("https://nvidia.github.io/apex/amp.html#o2-almost-fp16-mixed-precision", NATIVE),
        examples=(Example("output = model(input)", "output = model(input).float()"),),
    ),
    Code(
        "AMP504",
        "Values are float32 before they become NumPy arrays",
        "Tensor.cpu",
        apex="O1 returns float32 from .cpu().",
        native=".cpu() keeps the dtype: a float16 array, and for bfloat16 a TypeError.",
        why="NumPy code that follows expects float32.",
        links=(NATIVE,),
        examples=(Example("output.cpu().numpy()", "output.float().cpu().numpy()"),),
    ),
    Code(
        "AMP505",
        "binary_cross_entropy stands outside autocast, on float32 inputs",
        "BCELoss",
        apex="O1 raises; O2 computes it in float32.",
        native="Raises under autocast on CUDA (CPU autocast accepts it).",
        why="Probabilities are too coarse in half precision; binary_cross_entropy_with_logits is the safe form.",
        links=(
            "https://pytorch.org/docs/stable/amp.html#prefer-binary-cross-entropy-with-logits-over-binary-cross-entropy",
        ),
    ),
)


def apply(m: Migration) -> None:
    promised = any(_promises(i.literal("opt_level"), i.literal("cast_model_outputs")) for i in m.unit.inits)
    for scope in m.regions.scopes():
        found = m.regions.read(scope)
        if not found.found and not found.islands:
            continue
        inside = {s for r in found.found for s in _run(scope.module, r.first, r.last)}
        _outputs(m, scope.module, found, inside, everything=promised)
        _arrays(m, scope.module, found, inside)
        for stmt in found.islands:
            m.output.note(
                scope.module, stmt, "AMP505", "BCELoss", "computed outside autocast, on float32 inputs", "look"
            )


def _promises(level: object, cast: object) -> bool:
    return level in ("O2", "O3") or cast not in (None, False)


def _run(module: Module, first: ast.stmt, last: ast.stmt) -> list[ast.stmt]:
    block = module.block(first)
    try:
        return block[block.index(first) : block.index(last) + 1]
    except ValueError:
        return [first]


def _inside(module: Module, node: ast.AST, inside: set[ast.stmt]) -> bool:
    return any(a in inside for a in (node, *module.ancestors(node)))


def _outputs(m: Migration, module: Module, found: Regions, inside: set[ast.stmt], *, everything: bool) -> None:
    """`output = model(x)` whose value is used as a tensor outside the region."""
    scope = found.scope
    for stmt in (n for s in inside for n in ast.walk(s)):
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
            continue
        value = stmt.value
        if not isinstance(value, ast.Call) or not m.regions.is_forward(module, value):
            continue
        name = stmt.targets[0].id
        uses = [
            n
            for s in scope.body
            for n in ast.walk(s)
            if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) and n.lineno > stmt.lineno
        ]
        outside = [n for n in uses if not _inside(module, n, inside)]
        in_island = any(_inside(module, n, set(found.islands)) for n in uses)
        if not in_island and not (everything and outside and all(_tensor_use(module, n) for n in outside)):
            continue
        if any(_tensor_use(module, n) is False for n in uses):
            continue
        m.edit(module).insert("after", value, ".float()")
        m.output.note(module, stmt, "AMP503", "cast_model_outputs", f"{name} leaves the region as float32", "as-is")


def _tensor_use(module: Module, node: ast.Name) -> bool:
    parent = module.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr in TENSOR_METHODS
    if isinstance(parent, ast.Call) and node in parent.args:
        return True
    return isinstance(parent, (ast.Compare, ast.BinOp))


def _arrays(m: Migration, module: Module, found: Regions, inside: set[ast.stmt]) -> None:
    """`value.detach().cpu().numpy()` of something computed in the region."""
    for node in (n for s in found.scope.body for n in ast.walk(s)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "numpy"):
            continue
        before_cpu: ast.expr | None = None
        current: ast.expr = node.func.value
        methods: set[str] = set()
        while True:
            if isinstance(current, ast.Call) and isinstance(current.func, ast.Attribute):
                if current.func.attr == "cpu":
                    before_cpu = current.func.value
                methods.add(current.func.attr)
                current = current.func.value
            elif isinstance(current, ast.Attribute) and current.attr in ("data", "T"):
                current = current.value
            else:
                break
        if (
            not isinstance(current, ast.Name)
            or current.id not in found.values
            or methods & (WHOLE_NUMBERS | {"float", "double"})
        ):
            continue
        anchor = before_cpu if before_cpu is not None else node.func.value
        m.edit(module).insert("after", anchor, ".float()")
        m.output.note(
            module, node, "AMP504", "Tensor.cpu", f"{current.id} becomes float32 before NumPy sees it", "as-is"
        )
