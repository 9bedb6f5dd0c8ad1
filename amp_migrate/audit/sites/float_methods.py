"""Methods of networks in which nothing ever was half: embeddings, norms, rotations. O1 cast what was computed by matrix products
and convolutions; what else is computed of float32 was float32, and is."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amp_migrate.audit.dtypes import FLOAT_BOTH, FLOAT_LAYERS, HALF_BOTH, INTEGERS, KEEPING, MAKING, SHAPES
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function
from amp_migrate.audit.values.names import last_name

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed
    from amp_migrate.audit.side import Side
    from amp_migrate.audit.sites.forwards import Forward

# Methods of a tensor after which it is what it was, or float32, whatever comes in.
PLAIN = FLOAT_BOTH | INTEGERS | KEEPING | MAKING | SHAPES | {"float", "double", "type"}

NETWORK = re.compile(r"(?:model|net|encoder|decoder|backbone|bert|head|generator|discriminator)\d*$", re.IGNORECASE)

# Of losses, optimizers and scalers: no forward of anything.
STEPPING = frozenset("scale unscale_ backward step update zero_grad".split())
PRODUCTS = re.compile(r"Multivariate|LowRank|Wishart|LKJ")  # distributions that compute matrix products; others do not
# Functions of torch's that compute products by themselves.
INSIDE = ("attention", "attention_forward", "lstm", "gru", "rnn", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell")


def float_method(both: Mixed, forward: Forward) -> bool:
    """Whether a call is seen to run methods of the program's networks, and none of these computes anything in half."""
    runs = both.before.forwards.runs(forward)
    return bool(runs) and all(_floats(both.before, function, {*runs}) for function in runs)


def casts_apart(both: Mixed, forward: Forward) -> bool:
    """Whether a call, after, is seen to run methods of the program's networks that have regions of their own, by what they
    call, too, around all that they compute in half: what is in these is compared by itself."""
    runs = both.after.forwards.runs(forward)
    seen = {*runs}
    floats = bool(runs) and all(_floats(both.after, function, seen) for function in runs)
    return floats and any("autocast" in f.module.source(f.node) for f in seen)


def runs_products(both: Mixed, forward: Forward) -> bool:
    """Whether a call is seen to run what O1 cast to half: a network as a whole, or a method of the program's networks with a
    product or a layer in it. Of what is out of sight its name says so."""
    runs = both.before.forwards.runs(forward)
    if forward.method is None or not runs:
        return last_name(forward.call.func) not in ("index", "count")  # of lists, too
    return any(_products(both, function, {*runs}) for function in runs)


def _products(both: Mixed, function: Function, seen: set[Function]) -> bool:
    program, module = both.before.program, function.module
    values = both.review.values_before
    for node in syntax.walk(function.node):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
        if not isinstance(node, ast.Call):
            continue
        scope, name = module.scope_of(node), last_name(node.func)
        if name in HALF_BOTH or (program.dotted(scope, node.func) or "").endswith(INSIDE):
            return True
        if name == "forward" or syntax.text(node.func) in ("self", "cls"):
            return True
        field = isinstance(node.func, ast.Attribute) and program.is_self(scope, node.func.value) is not None
        if field or isinstance(node.func, ast.Name):  # `for layer in self.layers: x = layer(x)`
            made = [values.maker(o) for o in values.origins(scope, node.func)]
            if (field and NETWORK.search(name or "")) or any(m is not None and _is_network(both, m) for m in made):
                return True
        called = [f for f in program.callees(module, node) if f not in seen]
        seen.update(called)
        if any(_products(both, f, seen) for f in called):
            return True
    return False


def _is_network(both: Mixed, maker: str) -> bool:
    """Whether what is called by a full name makes a network that may have products in it: of torch's or of the program's."""
    if maker.startswith("torch.nn."):
        return maker.rpartition(".")[2] not in FLOAT_LAYERS
    program = both.before.program
    return any(f"{c.module.name}.{c.qualname}" == maker and program.is_network(c) for c in program.classes)


def _floats(side: Side, function: Function, seen: set[Function]) -> bool:
    for node in _outside(side, function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return False
        if isinstance(node, ast.Call) and not _call_floats(side, function, node, seen):
            return False
    return True


def _outside(side: Side, function: Function) -> Iterator[ast.AST]:
    """The nodes of a function, but for what stands in its own regions."""
    waiting: list[ast.AST] = [function.node] if side.regions.of_function(function) is None else []
    while waiting:
        node = waiting.pop()
        items = node.items if isinstance(node, (ast.With, ast.AsyncWith)) else []
        regions = [r for i in items if (r := side.regions.opened(function.module, i.context_expr)) is not None]
        if all(r.off for r in regions):
            yield node
            waiting += syntax.children(node)


def _call_floats(side: Side, function: Function, call: ast.Call, seen: set[Function]) -> bool:
    """Whether a call computes nothing in half; not where it is not seen what it runs."""
    program, module, func = side.program, function.module, call.func
    scope = module.scope_of(call)
    if (dotted := program.dotted(scope, func)) is not None and dotted.partition(".")[0] in ("torch", "numpy", "math"):
        last = dotted.rpartition(".")[2]
        return not PRODUCTS.search(last) if dotted.startswith("torch.distributions.") else _name_floats(last)
    if isinstance(func, ast.Name) and scope.binder(func.id) is None and hasattr(builtins, func.id):
        return func.id != "super"
    called = [f for f in program.callees(module, call) if f not in seen]
    if called or program.callees(module, call):
        seen.update(called)
        return all(_floats(side, f, seen) for f in called)
    values = side.values
    held = [o for o in values.origins(scope, func) if not (isinstance(o.node, ast.Constant) and o.node.value is None)]
    made = [values.maker(o) for o in held]
    if any(made):
        return all(m is not None and m.startswith("torch.nn.") and m.rpartition(".")[2] in FLOAT_LAYERS for m in made)
    return isinstance(func, ast.Attribute) and func.attr in PLAIN | STEPPING and not _is_field(side, func)


def _name_floats(name: str) -> bool:
    """Whether a function of torch's is none that O1 cast to half, nor a layer that is made and may be run."""
    made = name[:1].isupper() and name not in ("Tensor", "FloatTensor", "LongTensor")
    return not made and name not in HALF_BOTH | {"half"} and not name.endswith(INSIDE)


def _is_field(side: Side, func: ast.Attribute) -> bool:
    """Whether objects of the program keep something under the name of a method of tensors: `self.norm(x)`."""
    return last_name(func.value) in ("self", "cls") and bool(side.values.fields(func.attr))
