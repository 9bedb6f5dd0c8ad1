"""Calls that give back what they are given, or what behaves as it does: `model.cuda()`, `DataParallel(model)`."""

from __future__ import annotations

import ast
from typing import TypeGuard

from amp_migrate.audit.program.module import Scope
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.targets import Path

# Methods that give the object itself back.
SELF_RETURNING = frozenset(
    "to cuda cpu half float double train eval requires_grad_ type apply share_memory bfloat16".split()
)
# Calls that give one of their arguments back, or what behaves as it does: the position.
PASSING = {
    "torch.nn.DataParallel": 0,
    "torch.nn.parallel.DataParallel": 0,
    "torch.nn.parallel.DistributedDataParallel": 0,
    "apex.parallel.DistributedDataParallel": 0,
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": 0,
    "apex.parallel.convert_syncbn_model": 0,
    "torch.compile": 0,
    "torch.jit.script": 0,
    "apex.parallel.LARC": 0,
    "apex.parallel.LARC.LARC": 0,
    "apex.fp16_utils.network_to_half": 0,
    "apex.fp16_utils.convert_network": 0,
}

CHOOSING = ("random.choice", "numpy.random.choice", "secrets.choice")


def passed_on(call: ast.Call, name: str | None) -> ast.expr | None:
    """What a call of a full name (None: of what is no import) gives back; None where it gives something else."""
    position, func = PASSING.get(name or ""), call.func
    if position is not None and len(call.args) > position:
        return call.args[position]
    if isinstance(func, ast.Attribute) and func.attr in SELF_RETURNING and name is None:
        return func.value
    return None


def gathered(call: ast.Call, path: Path) -> tuple[ast.expr, Path] | None:
    """What holds the items of a list that a call makes, and which of them is meant: `list(nets)`, `nets.values()`."""
    func = call.func
    if isinstance(func, ast.Name) and func.id in ("list", "tuple") and len(call.args) == 1 and not call.keywords:
        return call.args[0], path
    if isinstance(func, ast.Name) and func.id in ("set", "sorted", "reversed", "iter") and len(call.args) == 1:
        return call.args[0], (None, *path[1:])
    if isinstance(func, ast.Attribute) and func.attr == "values" and not call.args and not call.keywords:
        return func.value, (None, *path[1:])
    return None


def picked(call: ast.Call, path: Path, name: str | None) -> list[tuple[ast.expr, Path]]:
    """What a call of Python's own, or of a full name, picks one of: `max(nets, key=score)`, `random.choice(nets)`."""
    if name in CHOOSING and call.args:
        return [(call.args[0], (None, *path))]
    if not isinstance(call.func, ast.Name) or call.func.id not in ("max", "min", "next") or name or not call.args:
        return []
    if len(call.args) == 1 or call.func.id == "next":
        return [(call.args[0], (None, *path)), *((other, path) for other in call.args[1:])]
    return [(each, path) for each in call.args]


def is_partial(value: ast.AST, program: Program, scope: Scope) -> TypeGuard[ast.Call]:
    """Whether a value only runs what it was given, with some of the arguments: `partial(model.sample, steps=2)`."""
    return isinstance(value, ast.Call) and bool(value.args) and program.dotted(scope, value.func) == "functools.partial"


def is_mapping(call: ast.Call, name: str | None, scope: Scope) -> bool:
    """Whether a call makes a mapping of what it is given: `dict(a=x)`, `OrderedDict([("a", x)])`."""
    own = isinstance(call.func, ast.Name) and call.func.id == "dict" and scope.binder("dict") is None
    return own or name == "collections.OrderedDict"


def mapped(call: ast.Call, path: Path) -> list[tuple[ast.expr, Path]]:
    """What such a mapping holds under a key, as what of which value: of pairs in a list the second."""
    named = [(k.value, path[1:]) for k in call.keywords if k.arg is not None and path[0] in (None, k.arg)]
    if named and path[0] is not None:
        return named
    whole = [*call.args, *(k.value for k in call.keywords if k.arg is None)]
    pairs = (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp)
    zipped = {v: v.args[1] for v in whole if isinstance(v, ast.Call) and _of_two(v)}
    whole = [v for v in whole if v not in zipped]
    named += [(v, (None, *path[1:])) for v in zipped.values()]
    return named + [(v, (None, 1, *path[1:]) if isinstance(v, pairs) else path) for v in whole]


def _of_two(call: ast.Call) -> bool:
    """`zip(names, nets)`."""
    return isinstance(call.func, ast.Name) and call.func.id == "zip" and len(call.args) == 2


def joined_items(expr: ast.BinOp, path: Path) -> list[tuple[ast.expr, Path]]:
    """What holds the items of two lists in one, `held + [more]`, or of two dictionaries, `held | {"more": more}`; nothing where
    neither is seen to be one: tensors are added, too."""
    lists = isinstance(expr.op, ast.Add) and (_is_list(expr.left) or _is_list(expr.right))
    if not lists and not (isinstance(expr.op, ast.BitOr) and isinstance(expr.right, ast.Dict)):
        return []
    moved = (None, *path[1:]) if isinstance(path[0], int) else path
    first = path if isinstance(path[0], int) and path[0] >= 0 else moved
    if isinstance(expr.left, (ast.List, ast.Tuple)) and isinstance(path[0], int) and 0 <= path[0] < len(expr.left.elts):
        return [(expr.left, path)]
    return [(expr.left, first), (expr.right, moved)]


def _is_list(expr: ast.expr) -> bool:
    """Whether a list or tuple is made here."""
    made = (
        isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and expr.func.id in ("list", "tuple", "sorted")
    )
    joined = (
        isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add) and (_is_list(expr.left) or _is_list(expr.right))
    )
    return made or joined or isinstance(expr, (ast.List, ast.Tuple, ast.ListComp))


def initialized(call: ast.Call, path: Path) -> tuple[ast.expr, Path] | None:
    """What `amp.initialize` gives back: what it is given, the models, or models and optimizers."""
    if call.args and isinstance(call.args[0], ast.Starred):
        return call.args[0].value, path
    given = [*call.args, *(k.value for k in call.keywords if k.arg in ("models", "optimizers"))]
    optimizers = len(call.args) > 1 or any(k.arg == "optimizers" for k in call.keywords)
    if given and not optimizers:
        return given[0], path
    if path and isinstance(path[0], int) and 0 <= path[0] < 2 and len(given) > path[0]:
        return given[path[0]], path[1:]
    return None


def itself(program: Program, scope: Scope, expr: ast.expr) -> ast.expr:
    """What an expression gives back, through such calls."""
    while isinstance(expr, ast.Call) and (given := passed_on(expr, program.dotted(scope, expr.func))) is not None:
        expr = given
    return expr
