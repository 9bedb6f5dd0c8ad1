"""Values that go to the CPU, where Apex made them float32: `.float()` is written out, unless they are already.

Apex: https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use
Native: https://pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

import ast
import re

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.regions.hot import is_loss
from amp_migrate.reading.regions.place import Regions
from amp_migrate.rules.migration import Migration

NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.autocast"
# Functions and methods that return a tensor of the dtype they are given, and methods that write into a part of one.
KEEPING = frozenset(
    "sigmoid softmax log_softmax tanh relu exp log sqrt normalize detach clone squeeze unsqueeze view reshape flatten "
    "permute transpose contiguous clamp".split()
)
UNCHANGED = KEEPING - frozenset("softmax log_softmax exp log normalize".split())  # autocast makes those float32
WHOLE_NUMBERS = frozenset("argmax argmin argsort topk max min sort long int bool gt lt ge le eq ne round".split())
# What is the same of float16 and of its float32 copy.
SAME_VALUES = WHOLE_NUMBERS | frozenset("float double numpy item tolist size dim numel".split())
# Methods of a model that return token ids or class numbers: float32 ids could not be looked up in a vocabulary.
GENERATORS = frozenset("generate beam_search greedy_search greedy_decode viterbi_decode predict_classes".split())

# What a model returns beside its predictions may be indices; these names are given to floating values.
OUTPUT_NAMES = re.compile(r"logit|prob|score|embed|feature|hidden|output|loss|audio|mel|spec", re.IGNORECASE)

CODES = (
    Code(
        "AMP504",
        "Values are float32 where they go to the CPU",
        "Tensor.cpu",
        apex="O1 returns float32 from .cpu(), and O2 and O3 from the model.",
        native=".cpu() keeps the dtype: a float16 tensor or array, and for bfloat16 a TypeError from numpy().",
        why="What follows expects float32: NumPy code, metrics over all of a data set, files of results.",
        links=(NATIVE,),
        examples=(
            Example("output.cpu().numpy()", "output.float().cpu().numpy()"),
            Example("outputs.append(output.cpu())", "outputs.append(output.float().cpu())"),
        ),
    ),
)


def apply(m: Migration, found: Regions, inside: set[ast.stmt], cast: set[str]) -> None:
    """The values of one scope's regions; `cast`: names that are made float32 where they leave the region."""
    _arrays(m, found.scope.module, found, inside, cast)
    _host_copies(m, found.scope.module, found, inside, cast)


def inside_of(module: Module, node: ast.AST, inside: set[ast.stmt]) -> bool:
    """Whether a node stands in one of some statements."""
    return any(a in inside for a in (node, *module.ancestors(node)))


def bindings(found: Regions, name: str) -> list[ast.stmt]:
    """The statements that bind a name."""
    return [found.scope.module.statement(b) for b in found.scope.bindings.get(name, ())]


def _derived(module: Module, found: Regions, direct: set[str]) -> set[str]:
    """Names computed outside the region from one inside, by what keeps a half tensor half: `p = torch.sigmoid(output)`."""
    names: set[str] = set()
    for stmt in sorted((n for s in found.scope.body for n in ast.walk(s) if isinstance(n, ast.Assign)), key=_line):
        value, target = stmt.value, stmt.targets[0]
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Call):
            continue
        if not isinstance(value.func, (ast.Name, ast.Attribute)):
            continue
        last = ast.unparse(value.func).rpartition(".")[2]
        given = [*value.args[:1], *([value.func.value] if isinstance(value.func, ast.Attribute) else [])]
        if last in KEEPING and any(isinstance(g, ast.Name) and g.id in direct | names for g in given):
            if len(found.scope.bindings.get(target.id, ())) == 1:
                names.add(target.id)
    return names


def _line(stmt: ast.stmt) -> int:
    return stmt.lineno


def _arrays(m: Migration, module: Module, found: Regions, inside: set[ast.stmt], cast: set[str]) -> None:
    """`value.detach().cpu().numpy()` of something computed in the region, unless that is float32 already."""
    generated = {
        name.id
        for stmt in (n for s in found.scope.body for n in ast.walk(s) if isinstance(n, ast.Assign))
        for name in (stmt.targets if _generates(stmt.value) else _indices(stmt))
        if isinstance(name, ast.Name)
    }
    derived = _derived(module, found, found.values - generated)
    for node in (n for s in found.scope.body for n in ast.walk(s)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "numpy"):
            continue
        before_cpu: ast.expr | None = None
        current: ast.expr = node.func.value
        methods: set[str] = set()
        while not m.regions.is_forward(module, current):
            if isinstance(current, ast.Call) and isinstance(current.func, ast.Attribute):
                if current.func.attr == "cpu":
                    before_cpu = current.func.value
                methods.add(current.func.attr)
                current = current.func.value
            elif (isinstance(current, ast.Attribute) and current.attr in ("data", "T")) or (
                isinstance(current, ast.Subscript) and isinstance(current.slice, (ast.Tuple, ast.Slice))
            ):
                current = current.value
            else:
                break
        named = isinstance(current, ast.Name) and current.id in (found.values | derived) - generated
        forward = isinstance(current, ast.Call) and not _generates(current) and inside_of(module, current, inside)
        if not (named or forward) or methods & (WHOLE_NUMBERS | {"float", "double"}):
            continue
        if isinstance(current, ast.Name) and (current.id in cast or _is_float32(m, module, found, current.id)):
            continue
        if isinstance(current, ast.Name) and _may_be_whole(m, module, found, current.id):
            message = (
                f"{current.id} may be float16 for NumPy, where O1 made it float32: .float() keeps it, unless it holds whole "
                "numbers"
            )
            m.output.note(module, node, "AMP504", "Tensor.cpu", message)
            continue
        anchor = before_cpu if before_cpu is not None else node.func.value
        m.edit(module).insert("after", anchor, ".float()")
        m.output.note(
            module,
            node,
            "AMP504",
            "Tensor.cpu",
            f"{ast.unparse(current)} becomes float32 before NumPy sees it",
            "as-is",
        )


def _is_float32(m: Migration, module: Module, found: Regions, name: str) -> bool:
    """Whether a name only ever holds a loss: autocast computes losses in float32."""
    values = [b.value for b in bindings(found, name) if isinstance(b, ast.Assign)]
    return bool(values) and all(
        isinstance(v, ast.Call) and is_loss(v) and not m.regions.is_forward(module, v) for v in values
    )


def _may_be_whole(m: Migration, module: Module, found: Regions, name: str) -> bool:
    """Whether a name is one of several things that a model returns, and nothing shows that it holds no indices."""
    bound = [b for b in bindings(found, name) if isinstance(b, ast.Assign)]
    parts = [b for b in bound if isinstance(b.targets[0], ast.Tuple) and m.regions.is_forward(module, b.value)]
    if not parts or OUTPUT_NAMES.search(name):
        return False
    uses = [n for n in module.loads.get(name, ()) if module.scope_of(n) is found.scope]
    return not any(_shows_floating(module, n) for n in uses)


def _shows_floating(module: Module, node: ast.Name) -> bool:
    """Whether a use is made of floating values alone: `softmax(x)`, a loss of it."""
    parent = module.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("softmax", "log_softmax", "sigmoid", "exp", "norm", "argmax", "std", "mean")
    if isinstance(parent, ast.Call) and node in parent.args:
        last = ast.unparse(parent.func).rpartition(".")[2]
        return last in ("softmax", "log_softmax", "sigmoid", "exp", "argmax") or is_loss(parent)
    return False


def _host_copies(m: Migration, module: Module, found: Regions, inside: set[ast.stmt], cast: set[str]) -> None:
    """`output.cpu()`, where `output` is what the model returned or keeps the dtype of that, whatever becomes of it."""
    edits = m.edit(module)
    for node in (n for s in found.scope.body for n in ast.walk(s)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cpu"):
            continue
        root = _kept(node.func.value)
        part = isinstance(root, ast.Subscript) and isinstance(root.slice, ast.Constant)
        whole = root.value if isinstance(root, ast.Subscript) and part else root
        if isinstance(whole, ast.Name):
            earlier = [b for b in bindings(found, whole.id) if b.lineno < node.lineno]
            if whole.id in cast or not earlier or not all(_is_output(m, module, b, inside, part) for b in earlier):
                continue
            if part:
                if _read_as(module, node) not in SAME_VALUES - {"numpy"}:
                    message = (
                        f"O1 made {ast.unparse(root)} float32 on the CPU; it may be float16 now: .float() keeps it"
                    )
                    m.output.note(module, node, "AMP504", "Tensor.cpu", message)
                continue
        elif not (_is_model(m, module, root) and inside_of(module, root, inside)):
            continue
        if node.func.value in edits.insertions or _read_as(module, node) in SAME_VALUES:
            continue
        edits.insert("after", node.func.value, ".float()")
        message = f"{ast.unparse(root)} goes to the CPU as float32"
        m.output.note(module, node, "AMP504", "Tensor.cpu", message, "as-is")


def _is_output(m: Migration, module: Module, stmt: ast.stmt, inside: set[ast.stmt], parts: bool) -> bool:
    """Whether a statement gives a name, and nothing else, what the model returns in a region: a tensor, or its parts."""
    return (
        isinstance(stmt, ast.Assign)
        and len(stmt.targets) == 1
        and isinstance(stmt.targets[0], ast.Name)
        and "loss" not in stmt.targets[0].id.lower()  # losses are float32 in a region as well
        and _is_model(m, module, _kept(stmt.value), parts)
        and inside_of(module, stmt, inside)
    )


def _is_model(m: Migration, module: Module, node: ast.expr, parts: bool = False) -> bool:
    return (
        isinstance(node, ast.Call)
        and m.regions.is_forward(module, node)
        and not _generates(node)
        and (parts or m.regions.returns.of(module, node) in ("tensor", "unknown"))
    )


def _kept(node: ast.expr) -> ast.expr:
    """What an expression takes its dtype from: `x` of `x.detach().view(-1)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in UNCHANGED:
        return _kept(node.func.value)
    return _kept(node.value) if isinstance(node, ast.Attribute) and node.attr == "data" else node


def _read_as(module: Module, node: ast.expr) -> str:
    """The method that a value ends in: `item` of `x.detach().item()`."""
    outer = module.parents.get(node)
    call = module.parents.get(outer) if isinstance(outer, ast.Attribute) else None
    if not isinstance(outer, ast.Attribute) or not isinstance(call, ast.Call) or call.func is not outer:
        return ""
    return _read_as(module, call) if outer.attr in UNCHANGED else outer.attr


def _indices(stmt: ast.Assign) -> list[ast.expr]:
    """What an assignment gives whole numbers: `_, best = output.max(1)`, `best = output.argmax(1)`."""
    if not isinstance(stmt.value, ast.Call):
        return []
    method = ast.unparse(stmt.value.func).rpartition(".")[2]
    if method in ("max", "min", "topk", "sort"):
        return [e for t in stmt.targets if isinstance(t, ast.Tuple) for e in t.elts[1:2]]
    return stmt.targets if method in WHOLE_NUMBERS else []


def _generates(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in GENERATORS
