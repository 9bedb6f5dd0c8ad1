"""What the names in a function hold, as far as its text tells: floating point tensors, other things, or either."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from amp_migrate.reading.program.definitions import is_none
from amp_migrate.reading.program.module import LOOP_NODES, FunctionNode, Module
from amp_migrate.reading.program.tree import children, own_nodes, walk

# float: a floating point tensor; tensor: a tensor of any dtype; list: a list or tuple that may hold tensors;
# other: no floating point tensor; unknown: any of these; odd: used in ways that contradict each other.
Kind = Literal["float", "tensor", "list", "unknown", "other", "odd"]

FLOAT_METHODS = frozenset(
    "pow exp expm1 log log2 log10 log1p softmax log_softmax sigmoid tanh norm sqrt rsqrt mean var std "
    "matmul mm bmm mv erf cos sin tan acos asin atan sinh cosh relu clamp_min reciprocal logsumexp float "
    "half bfloat16 double lerp addmm baddbmm softplus prod cumprod requires_grad_ backward".split()
)
SHAPE_METHODS = frozenset(
    "view reshape unsqueeze squeeze permute transpose t contiguous expand expand_as flatten detach clone "
    "cuda cpu to repeat chunk split narrow unfold flip roll select view_as reshape_as abs neg sum max min "
    "clamp add sub mul div masked_fill repeat_interleave swapaxes movedim triu tril diagonal diag".split()
)
SELECTING_METHODS = frozenset("gather index_select masked_select take take_along_dim".split())  # elements, as they are
OTHER_METHODS = SELECTING_METHODS | frozenset(
    "size dim numel item tolist numpy stride type type_as new new_zeros new_ones new_full new_tensor "
    "new_empty data_ptr get_device is_contiguous is_floating_point zero_ fill_ copy_ long int bool byte "
    "scatter scatter_ argmax argmin topk sort argsort nonzero eq ne gt lt ge le "
    "nelement element_size register_hook retain_grad unbind any all index_add_ index_copy_ "
    "index_put_ unique".split()
)
TENSOR_METHODS = FLOAT_METHODS | SHAPE_METHODS | OTHER_METHODS
ATTRIBUTES = frozenset("shape device dtype T mT data grad is_cuda requires_grad ndim is_leaf grad_fn layout".split())
# What a tensor says of itself, which is no tensor.
DESCRIPTIONS = frozenset(
    "shape device dtype is_cuda is_cpu is_sparse is_quantized requires_grad ndim is_leaf grad_fn layout names itemsize "
    "nbytes _version retains_grad output_nr".split()
)
# Methods of which a half tensor and its float32 copy give the same.
ALIKE_OF_COPIES = frozenset("size dim numel nelement get_device item tolist".split())
# Built-in functions that ask nothing that depends on a tensor's dtype.
INDIFFERENT = frozenset("len isinstance type id range enumerate hasattr callable".split())
# torch and torch.nn.functional: how many leading arguments are floating point tensors.
FLOAT_ARGUMENTS = {
    **dict.fromkeys(
        "softmax log_softmax sigmoid logsigmoid tanh exp expm1 log log2 log10 log1p sqrt rsqrt pow relu elu "
        "gelu silu softplus dropout layer_norm group_norm batch_norm instance_norm normalize norm mean var "
        "std avg_pool2d max_pool2d interpolate adaptive_avg_pool2d cross_entropy nll_loss logsumexp erf "
        "reciprocal leaky_relu cosh sinh acos asin tan".split(),
        1,
    ),
    **dict.fromkeys(
        "matmul mm bmm mv mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy cdist dist "
        "grid_sample binary_cross_entropy_with_logits cosine_similarity pairwise_distance".split(),
        2,
    ),
    **dict.fromkeys(
        "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d baddbmm addmm".split(), 3
    ),
}
# Positions that hold class numbers or indices.
INTEGER_ARGUMENTS = {"cross_entropy": 1, "nll_loss": 1, "embedding": 0, "one_hot": 0, "gather": 2, "index_select": 2}
# What programs call floating point tensors, where nothing in the function tells.
FLOAT_NAMES = frozenset(
    "x input logits features feature feats feat rois boxes scores score weight hidden hidden_states "
    "grad_output grad predictions prediction preds pred probs prob embeddings embedding anchors query key "
    "value q k v attn".split()
)
NOT_TENSOR = re.compile(
    r"^(int|float|bool|str|bytes|dict|Dict.*|set|Callable.*|type|Path|None|torch\.(device|dtype|Size))$"
)

# Parameters of torch's functions that are numbers, sizes and names, no tensors.
NUMBERS = frozenset(
    "size scale_factor mode align_corners dim dims axis kernel_size stride padding dilation groups output_size keepdim "
    "training inplace reduction ignore_index num_classes dtype device shape ord".split()
)


def parameter_kinds(module: Module, function: FunctionNode) -> dict[str, Kind]:
    """What the parameters of a function hold; those its body never reads are left out.

    The first parameter of a method (`self`, `cls`, and `ctx` of an autograd function) is left out too.
    """
    a = function.args
    positional = [*a.posonlyargs, *a.args]
    defaults: dict[str, ast.expr | None] = dict(
        zip([p.arg for p in positional[len(positional) - len(a.defaults) :]], a.defaults, strict=True)
    )
    defaults.update(zip([p.arg for p in a.kwonlyargs], a.kw_defaults, strict=True))
    own = positional[1:] if _bound(module, function) else positional
    kinds: dict[str, Kind] = {}
    for parameter in [*own, *a.kwonlyargs]:
        uses = loads(function.body, parameter.arg)
        if uses:
            kinds[parameter.arg] = _kind(
                module, uses, parameter.annotation, defaults.get(parameter.arg), named=parameter.arg in FLOAT_NAMES
            )
    return kinds


def _bound(module: Module, function: FunctionNode) -> bool:
    """Whether the first parameter is the instance, the class, or the context of an autograd function."""
    if not isinstance(module.parents.get(function), ast.ClassDef):
        return False
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    return not static or bool(function.args.args and function.args.args[0].arg in ("ctx", "self", "context"))


def read_kinds(module: Module, body: Sequence[ast.stmt]) -> dict[str, Kind]:
    """What the local names hold that statements read before they bind them, as the whole function tells."""
    first: dict[str, bool] = {}
    for stmt in body:
        for name in _in_order(stmt):
            first.setdefault(name.id, isinstance(name.ctx, ast.Load))
    names = [name for name, read in first.items() if read]
    local = module.scope_of(body[0])
    return {
        name: _kind(module, loads(local.body, name), None, None)
        for name in names
        if local.lookup(name) is local and name not in local.imports
    }


def _in_order(node: ast.AST) -> Iterator[ast.Name]:
    """The names below a node in the order in which they are evaluated and bound."""
    if isinstance(node, ast.Name):
        yield node
        return
    below = children(node)
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        below = [node.value, *(c for c in below if c is not node.value)]
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        below = [node.iter, *(c for c in below if c is not node.iter)]
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        below = [*node.generators, *(c for c in below if c not in node.generators)]
    for child in below:
        yield from _in_order(child)


def loads(body: Iterable[ast.stmt], name: str) -> list[ast.Name]:
    """The reads of a name in statements."""
    return [
        node
        for stmt in body
        for node in walk(stmt)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]


def held(module: Module, uses: list[ast.Name]) -> Kind:
    """What a value holds, by its uses alone."""
    return _kind(module, uses, None, None)


def _kind(
    module: Module,
    uses: list[ast.Name],
    annotation: ast.expr | None,
    default: ast.expr | None,
    *,
    named: bool = False,
) -> Kind:
    """`named`: the name is one that programs give to floating point tensors."""
    text = ast.unparse(annotation).strip("\"'") if annotation is not None else ""
    optional = is_none(default) or "Optional" in text or "None" in text
    if isinstance(default, (ast.Constant, ast.UnaryOp, ast.JoinedStr)) and not optional:
        return "other"
    if re.search(r"\b(List|list|Sequence|Tuple|tuple|Iterable)\[.*Tensor", text):
        return "list"
    if text and (NOT_TENSOR.match(text) or re.search(r"\b(Long|Int|Bool|Byte)Tensor$", text)):
        return "other"
    declared = bool(re.search(r"Tensor\b", text))
    found = {e for e in (_evidence(module, use, declared) for use in uses) if e is not None}
    if "integer" in found or "other" in found:
        return "odd" if found & {"float", "tensor", "list"} and "other" in found else "other"
    if "list" in found:
        return "odd" if found & {"float", "tensor"} else "list"
    if optional:
        return "unknown"
    if "float" in found or (named and (declared or not text)):
        return "float"
    return "tensor" if declared or "tensor" in found else "unknown"


def _evidence(module: Module, use: ast.Name, declared: bool) -> str | None:
    """What one read of a name says about its value. `declared`: the name is annotated as a tensor."""
    node: ast.expr = use
    tensor = declared
    seen: str | None = None
    while True:
        parent = module.parents[node]
        if isinstance(parent, ast.Attribute):
            call = module.parents[parent]
            if not (isinstance(call, ast.Call) and call.func is parent):
                return "tensor" if parent.attr in ATTRIBUTES or node is not use else "other"
            if parent.attr in FLOAT_METHODS:
                return "float"
            if parent.attr not in SHAPE_METHODS:
                known = parent.attr in OTHER_METHODS or parent.attr.endswith("_") or node is not use
                return "tensor" if known else "other"
            node, tensor, seen = call, True, "tensor"
            continue
        if isinstance(parent, ast.BinOp):
            if isinstance(parent.op, ast.MatMult):
                return "float"
            if not tensor:
                return seen
            node = parent
            continue
        if isinstance(parent, (ast.UnaryOp, ast.Subscript)) and tensor and node is not getattr(parent, "slice", None):
            node = parent
            continue
        return _placed(module, node, parent, seen) if node is use or tensor else seen


def _placed(module: Module, node: ast.expr, parent: ast.AST, seen: str | None) -> str | None:
    """What the place of a value says: an argument of a known function, an index, a thing iterated over."""
    if isinstance(parent, ast.Call):
        return "other" if parent.func is node else _passed(module, node, parent) or seen
    if isinstance(parent, ast.keyword):
        call = module.parents.get(parent)
        native = isinstance(call, ast.Call) and (module.qualify(call.func) or "").startswith("torch.")
        return "other" if native and parent.arg in NUMBERS else seen
    if isinstance(parent, ast.Subscript):
        if parent.slice is node:
            return "integer"
        if isinstance(parent.slice, ast.Constant):
            return "list" if isinstance(parent.slice.value, int) else "other"
        return "tensor" if isinstance(parent.slice, ast.Tuple) else None
    if isinstance(parent, ast.Tuple) and isinstance(module.parents.get(parent), ast.Subscript):
        return "integer"
    if isinstance(parent, (*LOOP_NODES, ast.comprehension)) and getattr(parent, "iter", None) is node:
        return "list"
    if isinstance(parent, ast.Assign) and any(isinstance(t, (ast.Tuple, ast.List)) for t in parent.targets):
        return "list"
    if isinstance(parent, ast.Starred):
        return "list"
    if isinstance(parent, (ast.If, ast.IfExp, ast.While)) and parent.test is node:
        return "other"
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
        return "other"
    if isinstance(parent, ast.Compare):
        sides = [c.value for c in (parent.left, *parent.comparators) if isinstance(c, ast.Constant)]
        return "other" if any(isinstance(side, str) for side in sides) else seen
    return seen


def _passed(module: Module, node: ast.expr, call: ast.Call) -> str | None:
    """What being an argument of a call says."""
    name = module.qualify(call.func) or ""
    last = name.rpartition(".")[2]
    place = next((i for i, a in enumerate(call.args) if a is node), None)
    if isinstance(call.func, ast.Name) and call.func.id in ("range", "int", "str", "open", "isinstance", "getattr"):
        return "other" if call.func.id not in ("isinstance", "int") else None
    if isinstance(call.func, ast.Name) and call.func.id in ("zip", "enumerate", "list", "tuple"):
        return "list"
    if not name.startswith("torch") or place is None:
        return None
    if INTEGER_ARGUMENTS.get(last) == place:
        return "integer"
    if place < FLOAT_ARGUMENTS.get(last, 0):
        return "float"
    return "tensor" if place == 0 and name.count(".") == 1 else None


def is_generator(function: FunctionNode) -> bool:
    """Whether a function yields: a decorator or a cast at its start would not act on what runs later."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own_nodes(function.body))


def only_described(module: Module, value: ast.expr) -> bool:
    """Whether a value is only asked what holds for any dtype (`len(x)`, `x.item()`), or for its dtype itself: a copy in
    another dtype would be idle there, or change what is asked."""
    parent = module.parents.get(value)
    if isinstance(parent, ast.Attribute):
        return parent.attr in DESCRIPTIONS | ALIKE_OF_COPIES
    return (
        isinstance(parent, ast.Call)
        and value in parent.args
        and isinstance(parent.func, ast.Name)
        and parent.func.id in INDIFFERENT
    )
