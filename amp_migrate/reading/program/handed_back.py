"""What a function hands back as it was given it: the parameters of its return statements."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import Function, is_none
from amp_migrate.reading.program.given_values import alternatives
from amp_migrate.reading.program.tree import walk

SAME_OBJECT_METHODS = frozenset(
    "to cuda cpu half float double train eval apply requires_grad_ share_memory type".split()
)
# Calls that return their first argument, or the object they are called on, wrapped or as it is.
WRAPPERS = frozenset(
    "DistributedDataParallel DataParallel DDP ADDP apex_DDP ApexDDP TorchDDP DataParallelModel convert_syncbn_model "
    "convert_sync_batchnorm compile deepcopy ModuleWrapper apply_gradient_allreduce unwrap_model unwrap "
    "FullyShardedDataParallel LARC LARS SWA Lookahead FP16_Optimizer wrap_optimizer network_to_half BN_convert_float "
    "convert_network FP16Model FP16_Module list tuple reversed enumerate zip iter next".split()
)

PUTTING = frozenset("append appendleft add extend insert".split())


class HandedBack:
    """What the functions of a program hand back."""

    def __init__(self) -> None:
        self.places: dict[Function, set[tuple[int | None, str]]] = defaultdict(set)
        self.each: dict[Function, set[str]] = defaultdict(set)  # the parameters whose elements come back
        self.more: set[Function] = set()  # those that return anything else

    def read(self, function: Function, node: ast.Return) -> None:
        self.places[function].update(handed_back(function, node))
        if (each := each_handed_back(function, node)) is not None:
            self.each[function].add(each)
        elif not only_hands_back(function, node):
            self.more.add(function)


def handed_back(function: Function, node: ast.Return) -> Iterator[tuple[int | None, str]]:
    """Parameters that a return statement hands back as they came, with their place in the returned tuple."""
    scope, value = function.scope, node.value
    elements = enumerate(value.elts) if isinstance(value, ast.Tuple) else [(None, value)]
    for index, element in elements:
        for candidate in alternatives(element) if element is not None else ():
            given = same_object(candidate)
            if isinstance(given, ast.Name) and given.id in scope.params and len(scope.bindings[given.id]) == 1:
                yield index, given.id


def only_hands_back(function: Function, node: ast.Return) -> bool:
    """Whether a return statement gives nothing but parameters as they came, or None."""
    back = {name for _, name in handed_back(function, node)}
    elements = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    given = [same_object(c) for e in elements if e is not None for c in alternatives(e)]
    return all((isinstance(g, ast.Name) and g.id in back) or is_none(g) for g in given)


def only_looks_up(function: Function) -> bool:
    """Whether a function does nothing but return what is kept somewhere: `return self.optimizer`."""
    *before, last = function.node.body
    documented = all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in before)
    looked_up = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.expr_context)
    return (
        documented
        and isinstance(last, ast.Return)
        and last.value is not None
        and all(isinstance(n, looked_up) for n in walk(last.value))
    )


def each_handed_back(function: Function, node: ast.Return) -> str | None:
    """The parameter of which a return statement hands each element back: `return [x.cuda() for x in inputs]`."""
    value = node.value
    if not isinstance(value, (ast.ListComp, ast.GeneratorExp)) or len(value.generators) != 1:
        return None
    each, of = value.generators[0].target, value.generators[0].iter
    taken = same_object(value.elt)
    if isinstance(each, ast.Name) and isinstance(taken, ast.Name) and taken.id == each.id and isinstance(of, ast.Name):
        return of.id if of.id in function.scope.params and len(function.scope.bindings[of.id]) == 1 else None
    return None


def same_object(value: ast.expr | None) -> ast.expr | None:
    """What a chain of calls hands on: `model` of `model.cuda().eval()`."""
    while (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in SAME_OBJECT_METHODS
    ):
        value = value.func.value
    return value


def held_under(receiver: ast.expr) -> ast.expr:
    """What a mapping holds under a key: `self.hooks.setdefault(event, [])` is `self.hooks[event]`."""
    if isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute) and receiver.args:
        if receiver.func.attr == "setdefault":
            return ast.copy_location(ast.Subscript(receiver.func.value, receiver.args[0], ast.Load()), receiver)
    return receiver


def put_in(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Which container a call or a statement puts something into, and a list of that: `xs.insert(0, x)`, `xs += [x]`,
    `named.setdefault("a", x)`."""
    if isinstance(node, ast.AugAssign):
        more = isinstance(node.op, ast.Add) and isinstance(node.value, (ast.List, ast.Tuple, ast.ListComp))
        return (node.target, node.value) if more else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    method, args = node.func.attr, node.args
    given = args[-1:] if method in PUTTING else args[1:2] if method == "setdefault" else []
    if not given:
        return None
    return held_under(node.func.value), given[0] if method == "extend" else ast.List(given, ast.Load())
