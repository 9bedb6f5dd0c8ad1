"""LARC and DistributedDataParallel of Apex around what Apex still trains."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import product

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review, names_called
from amp_migrate.audit.sites.setups import FP16_OPTIMIZER
from amp_migrate.audit.sites.weights import Frame as Names
from amp_migrate.audit.sites.weights import Weights, overlap
from amp_migrate.audit.ways.frames import Frame
from amp_migrate.audit.ways.ordered import Undecided, ordered
from amp_migrate.audit.ways.within import may_follow

APEX_DDP = ("apex.parallel.DistributedDataParallel", "apex.parallel.distributed.DistributedDataParallel")
WRAPPERS = ("apex.parallel.LARC", "apex.parallel.LARC.LARC", *APEX_DDP)

Given = tuple[Module, ast.Call, ast.expr]  # a call, and something that it is given


def replaced_wrappers(review: Review) -> Iterator[Doubt]:
    """LARC and DistributedDataParallel of Apex that went, around an object that Apex still has."""
    kept_before: dict[ast.AST | None, list[Given]] = {}
    for m, call, _ in review.calls_before("apex.amp.initialize"):
        if _still_there(review, m, call):
            for e in (*call.args[:2], *(k.value for k in call.keywords if k.arg in ("models", "optimizers"))):
                for o in review.values_before.of(m, e):
                    if isinstance(o.node, ast.Call):
                        kept_before.setdefault(o.node, []).append((m, call, e))
    near = mixed(review).nearness
    for module, call, name in review.calls_before(*WRAPPERS):
        if not call.args or same_call(review, module, call, name) or _of_another(module, call):
            continue
        # Scripts that never share a process share no object, though one function may make it for each.
        own = module, call, call.args[0]
        if name in APEX_DDP and (keeper := _stepped(review, module, call)) is not None:
            yield _left(module, call, name, keeper)
            continue
        handed = (h for o in review.values_before.of(module, call.args[0]) for h in kept_before.get(o.node, ()))
        if any(near.together(module, h[0]) and not _made_apart(review, own, h) for h in handed):
            yield _left(module, call, name, "amp.initialize")


def _left(module: Module, call: ast.Call, name: str, keeper: str) -> Doubt:
    what = name.rpartition(".")[2]
    message = f"left with Apex: what {what} wraps is still handed to {keeper}"
    if keeper != "amp.initialize":
        message = f"left with Apex: {keeper} still steps what {what} wraps"
    return Doubt(module.path, call.lineno, "AMP135", what, message)


def _stepped(review: Review, module: Module, call: ast.Call) -> str | None:
    """The FP16_Optimizer that stays and steps the weights of a model that a call wraps."""
    both = mixed(review)
    weights: Weights | None = None
    for where, keeper, name in review.calls_before(*FP16_OPTIMIZER):
        if not keeper.args or not _still_there(review, where, keeper):
            continue
        weights = weights or Weights(both.before.forwards)
        stepped = weights.of_optimizer(Names(where.scope_of(keeper)), keeper.args[0])
        wrapped = weights.network(Names(module.scope_of(call)), call.args[0])
        if any(overlap(a, b) for a in stepped for b in wrapped):
            return name.rpartition(".")[2]
    return None


def _made_apart(review: Review, one: Given, other: Given) -> bool:
    """Whether what two calls are given is made in different runs of what makes it, each by a call of `get_model` of its own; or
    no run comes by both calls."""
    if one[0] is other[0] and one[0].function_around(one[1]) is other[0].function_around(other[1]):
        if not may_follow(one[0], one[1], other[1]) and not may_follow(one[0], other[1], one[1]):
            return True
    before = ordered(review.values_before)
    try:
        made = [before.of(Frame(m, m.function_around(call)), call, expr).made for m, call, expr in (one, other)]
    except Undecided:
        return False
    return all(made) and all(a.surely_not(b) for a, b in product(*made))


def _of_another(module: Module, call: ast.Call) -> bool:
    """Whether the nearest import of what is called, of several in branches beside each other, is none of Apex's."""
    around = set(module.ancestors(call))
    name = call.func.id if isinstance(call.func, ast.Name) else None
    nearest: tuple[int, bool] | None = None
    for node in syntax.walk(module.tree) if name is not None else ():
        if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
            holder = module.parents.get(node)
            depth = len(list(module.ancestors(node)))
            beside = isinstance(holder, ast.If) and not _same_branch(module, holder, node, call)
            if (
                holder in around
                and node.lineno < call.lineno
                and not beside
                and (nearest is None or depth >= nearest[0])
            ):
                nearest = depth, (node.module or "").split(".")[0] != "apex"
    return nearest is not None and nearest[1]


def _same_branch(module: Module, holder: ast.If, one: ast.stmt, other: ast.AST) -> bool:
    inside = {id(a) for a in (module.statement(other), *module.ancestors(other))}
    block = holder.body if one in holder.body else holder.orelse
    return any(id(s) in inside for s in block)


def _still_there(review: Review, module: Module, call: ast.Call) -> bool:
    place = review.statement_now(module, call)
    return place is not None and (place[0] is module or place[1] in review.changes[module.path].same)


def same_call(review: Review, module: Module, call: ast.Call, name: str) -> bool:
    """Whether a call of Apex before is a call of Apex after."""
    place = review.statement_now(module, call)
    return place is not None and (place[0] is module or name in names_called(review.after, *place))
