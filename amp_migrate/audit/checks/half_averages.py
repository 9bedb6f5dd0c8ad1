"""A running average or a teacher that is copied from the model after `initialize` was half at O2 and O3, and is float32 now.

Told of `copy.deepcopy(model)` whose weights the program writes to afterwards, and of weights that are cloned into something
that it computes with, where a way by the set-up leads to the copy. What such a copy gives is compared by `precision.py`. Not
proved: copies made by code out of sight, and when they are updated.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.targets import targets
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.networks import copied_since, may_be_half
from amp_migrate.audit.sites.setups import FP16_OPTIMIZER, Identity
from amp_migrate.audit.sites.weights import Frame, Weights
from amp_migrate.audit.values.names import last_name
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP541",
        title="averages of half weights are float32 now",
        construct="a copy of the model",
        apex="O2 and O3 made the weights half: what was copied from the model after that, and what was averaged in the copy, was "
        "rounded to 11 bits at each step.",
        native="Weights stay float32, and so do copies of them. Nothing need be done; averages move where a step used to be "
        "rounded away, and take twice the memory.",
        why="An average with a decay of 0.999 hardly moved in half. Numbers of its evaluation differ from published ones.",
    ),
)
WRITING = frozenset("mul_ add_ sub_ lerp_ copy_ addcmul_ div_ data".split())
CLONING = frozenset({"clone", "deepcopy"})


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not any(s.models and not s.surely_patches for s in both.removed):
        return
    weights = Weights(both.before.forwards)
    for module in both.near:
        if not module.words & CLONING:
            continue
        for call, how in (*_models(both, weights, module), *_shadows(both, weights, module)):
            place = both.now(module, call)
            if place is None:
                continue
            asked = "" if both.floats(module) else "where the opt level asked for is O2 or O3, "
            message = (
                f"{how}, {both.since(module)}: {asked}these weights were float16 with Apex, and what is averaged in them was rounded "
                "to it at each step; they are float32 now"
            )
            yield review.doubt(*place, "AMP541", "a copy of the model", message, "look")
    yield from _saved(both, weights)


def _saved(both: Mixed, weights: Weights) -> Iterator[Doubt]:
    """Writes to what `state_dict()` gives of models whose weights were half, the first of a file."""
    for module in both.near:
        if "state_dict" not in module.words or module.words.isdisjoint(WRITING):
            continue
        for node in _writes(module):
            found = weights.of(Frame(module.scope_of(node)), node.value)
            if found is None or found.kind != "weights" or not found.saved:
                continue
            place = both.review.statement_now(module, node)
            if place is None or not any(_was_half(both, module, node, i) for i, _ in found.places):
                continue
            if not both.initializes(module):
                if _behind_masters(both, module, node):
                    message = (
                        f"{syntax.text(node)} writes to what state_dict() gives: FP16_Optimizer had made its float32 masters of the "
                        "weights before, and its first step wrote these over what is written here, unless it loaded a state of "
                        "its own; now it stays"
                    )
                    yield both.review.doubt(*place, "AMP541", "a copy of the model", message, "review")
                    break
                continue
            asked = "" if both.floats(module) else "where the opt level asked for is O2 or O3, "
            message = (
                f"{syntax.text(node)} writes to what state_dict() gives: {asked}Apex had it give float32 copies of float16 "
                "weights, and nothing that was written to them came to the model; now it does, as in float32 runs"
            )
            verdict: Verdict = "review" if both.floats(module) else "look"
            yield both.review.doubt(*place, "AMP541", "a copy of the model", message, verdict)
            break


def _behind_masters(both: Mixed, module: Module, node: ast.AST) -> bool:
    """Whether a run may have made an FP16_Optimizer by the time that it comes to a place."""
    near = both.nearness.files([module])
    made = [(m, call) for m, call, _ in both.review.calls_before(*FP16_OPTIMIZER) if m in near]
    return bool(made) and not both.precedes(module, node, made)


def _was_half(both: Mixed, module: Module, node: ast.AST, model: Identity) -> bool:
    """Whether a model may have had half weights where a node stands: it was initialized, or copied since."""
    made, home = model[0], model[-1]
    if isinstance(made, ast.Call) and isinstance(home, Module) and copied_since(both, home, made):
        return True
    return may_be_half(both, module, node, frozenset({model}))


def _models(both: Mixed, weights: Weights, module: Module) -> Iterator[tuple[ast.Call, str]]:
    """Copies of whole models that are written to."""
    for call in module.calls_named.get("deepcopy", ()):
        if copied_since(both, module, call) and (at := _written(both, weights, call)) is not None:
            yield call, f"{syntax.text(call)} copies the model, and {at} writes to its weights"


def _written(both: Mixed, weights: Weights, copy: ast.Call) -> str | None:
    for module in both.near:
        for node in () if module.words.isdisjoint(WRITING) else _writes(module):
            found = weights.of(Frame(module.scope_of(node)), node.value)
            if found is not None and found.kind == "weights" and not found.saved:
                if any(identity[0] is copy for identity, _ in found.places):
                    return f"{module.path}:{node.lineno}"
    return None


def _writes(module: Module) -> Iterator[ast.Attribute]:
    """Where something is written in place: `old.mul_(d)`, `old.data = new`; what it is written to is the value."""
    for node in syntax.every(module.tree, ast.Attribute):
        called = isinstance(module.parents.get(node), ast.Call) and node.attr in WRITING - {"data"}
        if called or (node.attr == "data" and isinstance(node.ctx, ast.Store)):
            yield node


def _shadows(both: Mixed, weights: Weights, module: Module) -> Iterator[tuple[ast.Call, str]]:
    """Clones of weights that are kept under a name and averaged there: the first of a file."""
    for call, value in module.method_calls("clone"):
        stmt = module.statement(call)
        if not isinstance(stmt, ast.Assign):
            continue
        kept = _kept(stmt)
        if kept is None or any(_named(n, kept) for n in syntax.walk(stmt.value)):
            continue
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):  # `p.detach()`
            value = value.func.value
        held = weights.of(Frame(module.scope_of(call)), value)
        if held is None or held.kind != "weights" or held.saved:
            continue
        model = frozenset(identity for identity, _ in held.places)
        if model and _averaged(module, kept) and may_be_half(both, module, call, model):
            yield call, f"{syntax.text(call)} copies the model's weights into {kept}"
            return


def _kept(stmt: ast.Assign) -> str | None:
    target = stmt.targets[0]
    while isinstance(target, ast.Subscript):
        target = target.value
    return last_name(target) if isinstance(target, (ast.Name, ast.Attribute)) else None


def _averaged(module: Module, kept: str) -> bool:
    """Whether a function of a file moves what is kept under a name on by a part: `shadow[k] = d * shadow[k] + (1 - d) * p`,
    `shadow[k].mul_(d).add_(...)`. What is only put back, or measured against, is no average."""
    return any(_moves(syntax.own_nodes(function.node), kept) for function in module.functions)


def _moves(nodes: Sequence[ast.AST], kept: str) -> bool:
    names = {kept}  # and by which a loop goes through it
    for node in nodes:
        if isinstance(node, (ast.For, ast.comprehension)):
            given = [(t, v) for t, v, _ in targets(node) if v is not None and _mentions(v, {kept})]
            names |= {n.id for t, _ in given for n in syntax.every(t, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _mentions(node.func.value, names):
            if node.func.attr in ("mul_", "lerp_"):
                return True
            if node.func.attr in WRITING and any(_scaled(a) for a in node.args):
                return True
    assigned = [n for n in nodes if isinstance(n, ast.Assign)]
    return any(_kept(n) == kept for n in assigned) and any(
        _scaled(n.value) and _mentions(n.value, names) for n in assigned
    )


def _scaled(expr: ast.expr) -> bool:
    return any(isinstance(n.op, ast.Mult) for n in syntax.every(expr, ast.BinOp))


def _mentions(expr: ast.expr, names: set[str]) -> bool:
    return any(_named(n, name) for n in syntax.walk(expr) for name in names)


def _named(node: ast.AST, name: str) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) == name
