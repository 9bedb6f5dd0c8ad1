"""An optimizer of Apex's that stepped half weights, and computed in float32, is not torch's, which computes in their dtype, untold.

Proves: where FusedAdam or FusedAdagrad became torch's, and a run may come by the program's own `model.half()` and then to
that optimizer of the model, without an object that keeps float32 masters for it, that is told.

Cannot prove: weights made half out of sight, or by a dtype that they are made with; what code out of sight that is handed the
optimizer does with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from amp_migrate.audit.checks.half_weights import comes_first
from amp_migrate.audit.checks.state import FUSED_ADAM, still_fused
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.targets import given_to
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.made_half import copied, made_float_again, made_half
from amp_migrate.audit.sites.weights import Frame, Weights, overlap
from amp_migrate.audit.sites.weights import Place as Network
from amp_migrate.audit.ways.formulas import Formula, conjunction, disjunction, example, negation
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP543",
        title="torch's optimizer steps weights that the program makes half",
        construct="optimizers.FusedAdam",
        apex="FusedAdam and FusedAdagrad read half weights and compute in float32.",
        native="torch.optim.AdamW and Adagrad compute in the dtype of the weights: in float16 their eps of 1e-8 or 1e-10 and the "
        "squares of small gradients are 0, and a step divides by 0.",
        why="Weights become inf or nan within a few steps. Keep apex.optimizers.FusedAdam there, or the weights in float32.",
        links=("https://nvidia.github.io/apex/optimizers.html",),
    ),
)

FUSED = (*FUSED_ADAM, "apex.optimizers.FusedAdagrad", "apex.optimizers.fused_adagrad.FusedAdagrad")
MASTERS = re.compile(r"fp16|float16|half|mixed|master", re.IGNORECASE)


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    swapped = list(_swapped(review))
    halved = [
        (module, call, model)
        for module in (both.after.modules if swapped else ())
        for call, model in made_half(module)
        if not copied(model)
    ]
    weights = Weights(both.after.forwards)
    for module, call in swapped if halved else ():
        given = next(iter(call.args), None) or next((k.value for k in call.keywords if k.arg == "params"), None)
        stepped = _networks(weights, Frame(module.scope_of(call)), given, 0) if given is not None else frozenset()
        for where, half, model in halved:
            made = weights.network(Frame(where.scope_of(half)), model)
            if not any(overlap(a, b) for a in made for b in stepped) or made_float_again(where, half, model):
                continue
            if not _may_step(both, (where, half), (module, call)):
                continue
            native = review.after.dotted(module.scope_of(call), call.func)
            message = (
                f"{syntax.text(model)} is made half at {where.path}:{review.line(where, half)}, and no float32 masters of it are "
                f"seen here: Apex's optimizer computed in float32, {native} computes in float16, where its eps and small squares "
                "are 0, so that weights become inf or nan. Keep Apex's here, or the weights in float32, unless what this is "
                "handed to keeps float32 copies"
            )
            yield review.doubt(module, call, "AMP543", "optimizers.FusedAdam", message, "review", ("AMP118", "AMP534"))
            break


def _swapped(review: Review) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that made an optimizer of Apex's and make one of torch's now."""
    for before, call, _ in review.calls_before(*FUSED):
        change = review.changes.get(before.path)
        if change is None or still_fused(review, before, call):
            continue
        new = change.back.get(before.statement(call))
        for node in syntax.walk(new) if new is not None else ():
            if isinstance(node, ast.Call):
                name = review.after.dotted(change.after.scope_of(node), node.func) or ""
                if name.startswith("torch.optim."):
                    yield change.after, node


def _networks(weights: Weights, frame: Frame, given: ast.expr, depth: int) -> frozenset[Network]:
    """The networks whose weights an expression is, or from which it is put together: `groups(model)`."""
    found = weights.weights(frame, given)
    for node in syntax.walk(given) if not found and depth < 4 else ():
        if isinstance(node, ast.Name):
            own = weights.network(frame, node)
            bound = frame.scope.binder(node.id)
            for statement in bound.bindings[node.id][:8] if bound is frame.scope and bound is not None else ():
                for value, _ in given_to(statement, node.id):
                    if value is not given and isinstance(value, ast.Call):
                        own |= _networks(weights, frame, value, depth + 1)
            found |= own
    return found


def _may_step(both: Mixed, half: tuple[Module, ast.AST], made: tuple[Module, ast.Call]) -> bool:
    """Whether a run may make a model half and then its optimizer, which nothing wraps that keeps float32 masters."""
    predicates, chains = both.after.predicates, both.after.chains
    wrapped: Formula = disjunction(
        [predicates.given(way) for module, call in _wraps(both, *made) for way in chains.to(module, call)]
    )
    for one in chains.to(*half):
        for other in chains.to(*made):
            if comes_first(one, other):
                way = conjunction([predicates.given(one), predicates.given(other), negation(wrapped)])
                if example(way) is not None:
                    return True
    return False


def _wraps(both: Mixed, made_in: Module, made: ast.Call) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that are given an optimizer and by their name keep float32 masters: `FP16_Optimizer(optimizer)`."""
    for module in both.after.modules:
        for call in module.calls():
            last = syntax.text(call.func).rpartition(".")[2]
            if not MASTERS.search(last):
                continue
            for given in syntax.given(call):
                if given is made or any(o.node is made for o in both.review.values_after.of(module, given)):
                    yield module, call
                    break
