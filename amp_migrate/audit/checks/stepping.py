"""The step as an automaton, closed: each optimizer object is zeroed, scaled, unscaled, stepped and updated in order.

On the program after, from every entry and over every path: a step has a backward before it; its gradients were scaled by
the scaler that unscales and steps them, once, and nobody divides them by another scale than theirs; `update` comes after
the last step and before the next; who looks at how large gradients are sees them unscaled, as with Apex; no optimizer
steps itself on scaled gradients; what a step left in .grad is cleared before a scaled backward adds to it, or it is told
(AMP224). Two scalers are not both on where the program refuses the options of both
(`ways/refusals.py`). And each function does to its optimizers what it did before, no more and no less.

It cannot tell apart the elements of one list, nor instances of one class; whose parameters a loss reaches is not known, so
that a backward counts for every optimizer of its scaler. What a test is about is known by its text only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change, head
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import INITIALIZE
from amp_migrate.audit.stepping.bodies import Bodies, Owner
from amp_migrate.audit.stepping.bounds import left_its_branch
from amp_migrate.audit.stepping.excluded import never_two
from amp_migrate.audit.stepping.left_over import added_up, left_over, only_where_caught
from amp_migrate.audit.stepping.lost import not_followed
from amp_migrate.audit.stepping.machine import (
    BESIDE,
    BOUND,
    EMPTIED,
    LEFT,
    MIXED,
    PLAIN,
    SCALED,
    STALE,
    UNSCALED,
    USED,
    ZERO,
    Machine,
    Place,
)
from amp_migrate.audit.stepping.objects import Objects, parts
from amp_migrate.audit.stepping.runs import Runs
from amp_migrate.audit.stepping.traces import differences
from amp_migrate.findings import Code

_LINK = "https://docs.pytorch.org/docs/stable/notes/amp_examples.html"

CODES = (
    Code(
        code="AMP231",
        title="backward, unscale_, step and update would not come in order",
        construct="optimizer.step",
        apex="Unscales as scale_loss ends, once for each backward; a step is the optimizer's own.",
        native="One unscale_ at most, one step and one update for each scaled backward, by one and the same scaler; "
        "whoever reads gradients comes after unscale_.",
        why="GradScaler raises where the order is wrong, or the optimizer steps on gradients that are off by the scale.",
        links=(_LINK,),
    ),
    Code(
        code="AMP232",
        title="the order of backward, step and update was not proved",
        construct="optimizer.step",
        apex="A step without gradients does nothing, one with zeros moves weights by momentum and weight decay; there is no "
        "scaler to be updated.",
        native="A step without a backward since zero_grad raises; every step is followed by one update.",
        why="What the message names decides whether the program works: read these places in the order in which they run.",
        links=(_LINK,),
    ),
    Code(
        code="AMP238",
        title="an optimizer steps on gradients that are still scaled, as it did with Apex",
        construct="optimizer.step",
        apex="Unscales the gradients of the optimizers that scale_loss names, and of no others.",
        native="scaler.step(optimizer) for each optimizer whose parameters the scaled loss reaches; one scaler.update() after the "
        "last of them.",
        why="An optimizer of its own for the centers of a loss, say, that initialize was not given, or no FP16_Optimizer "
        "wrapped: its gradients are tens of thousands of times too large, and not finite where a step overflows. It was so "
        "before, and is left as it was.",
        links=(_LINK,),
    ),
    Code(
        code="AMP239",
        title="gradients are exchanged between processes after unscale_ has looked for infs",
        construct="unscale_",
        apex="Looks for infs as scale_loss ends, in the gradients of each process by itself. O1 then stepped what stood in .grad; "
        "O2 stepped float32 masters that were copied there, whatever is put into the .grad of the half weights later.",
        native="unscale_ looks for infs once; scaler.step does not look again at what is put into .grad afterwards.",
        why="The infs of one process reach the step of the others, which skip nothing: their weights and scales part. Where the "
        "exchange is a sum or a mean, let it come before unscale_ (the step unscales too): each process sees the same infs.",
        links=(_LINK,),
    ),
)


RELEVANT = ("backward", "step", "GradScaler", "scaler", "clip_grad", "zero_grad")
NATIVE = frozenset({"GradScaler", "unscale_"})  # what tells of a scaler of the program's own, made in sight or not
_ACTS = re.compile(r"\b(backward|step|unscale_|update|scale|zero_grad|clip_grad\w*)\(|\bscale_loss\b|\bmaster_params\b")

_OF_A_SCALER = re.compile(r"\b(unscale_|update|scale)\(|scaler\.step\(", re.IGNORECASE)


def check(review: Review) -> Iterable[Doubt]:
    if review.wish.dtype == "bfloat16" or not any("GradScaler" in m.text for m in review.after.modules.values()):
        return
    if not any(word in c.after.text for c in review.changes.values() for word in RELEVANT):
        return
    bodies = Bodies(Objects(review.values_after))
    yield from differences(review, bodies)
    machine, lost = follow(bodies, _managed(review), {c.after for c in review.changes.values()})
    review.__dict__["_bodies"] = bodies  # for the check of networks that are made anew
    faults = list(_faults(review, machine))
    if faults and any(m.words & NATIVE for m in review.before.modules.values()):
        was = Bodies(Objects(review.values_before))
        old, missed = follow(was, frozenset(), {c.before for c in review.changes.values()})
        had = {(d.line, d.path, d.message) for d in _faults(review, old, before=True)}
        faults = [d for d in faults if (d.line, d.path, d.message) not in had]
        if missed and lost and not any(map(_scales_otherwise, review.changes.values())):
            faults = []  # told as what was not followed: only Apex went, and less of the same paths was walked before
    yield from faults
    starts: dict[Module, Owner] = {}
    for owner in lost if any(map(_steps_change, review.changes.values())) else ():
        module = owner.module if isinstance(owner, Function) else owner
        if module.path in review.changes or not _is_of_tests(module):
            starts.setdefault(module, owner)
    if starts:
        yield not_followed(review, bodies, starts)


def _steps_change(change: Change) -> bool:
    """Whether a migration writes or takes away anything that acts on gradients: other names for the same things do not."""
    touched = (*change.removed, *change.added, *change.rewritten, *change.rewritten.values())
    return any(_ACTS.search(head(s)) for s in touched)


def _scales_otherwise(change: Change) -> bool:
    """Whether a migration writes anything that acts on gradients, or takes away what a scaler of the program's own did: where
    only Apex's branches go, what stays does what it did."""
    rewritten = [
        (old, new) for new, old in change.rewritten.items() if _ACTS.findall(head(old)) != _ACTS.findall(head(new))
    ]
    written = [*change.added, *(new for _, new in rewritten)]
    gone = [*change.removed, *(old for old, _ in rewritten)]
    return any(_ACTS.search(head(s)) for s in written) or any(_OF_A_SCALER.search(head(s)) for s in gone)


def follow(bodies: Bodies, managed: frozenset[str], changed: set[Module]) -> tuple[Machine, list[Owner]]:
    """Every path of the entries that come by changed files and by a scaler."""
    machine = Machine(bodies.objects, managed, bodies.others_step)
    runs = Runs(bodies, machine)
    reached: dict[Owner, bool] = {}

    def near(owner: Owner, seen: frozenset[Owner] = frozenset()) -> bool:
        if owner not in reached:
            module = owner.module if isinstance(owner, Function) else owner
            reached[owner] = module in changed or any(
                near(f, seen | {owner})
                for a in bodies.calls.get(owner, ())
                for f in a.callees
                if f in bodies and f not in seen
            )
        return reached[owner]

    entries = [e for e in runs.entries if near(e) and bodies.has(e, "scaler")]
    runs.learn(entries)
    return machine, runs.walk(entries)


def _managed(review: Review) -> frozenset[str]:
    """Places, in the program after, of optimizers whose loss Apex scaled before."""
    found: set[str] = set()
    objects = Objects(review.values_before)
    for module, call, _ in review.calls_before("apex.amp.scale_loss"):
        given = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "optimizers")]
        several = [e for g in given for e in (g.elts if isinstance(g, (ast.List, ast.Tuple)) else [g])]
        places = {p for e in several for p in parts(objects.ref(module.scope_of(e), e, {}).ident)}
        for origin in (objects.made[p] for p in sorted(places) if p in objects.made):
            node: ast.AST | None = origin.node
            change = review.changes.get(origin.module.path)
            if change is not None:
                stmt = change.back.get(change.before.statement(origin.node))
                node = getattr(stmt, "value", None)
            if node is not None:
                line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
                found.add(f"{origin.module.path}:{line}:{column}")
    return frozenset(found)


# -- from what was met to doubts ----------------------------------------------------------------------------------

_NO_BACKWARD = (ZERO, USED)
WITHOUT = (
    "Apex's step did nothing there where zero_grad sets gradients to None, as torch does since 2.0; where it left zeros, momentum "
    "and weight decay moved the weights"
)
_OF_TWO = {"by two", "other scaler"}  # what takes two scalers that are on
LEFT_BRANCH = "gradients would be clipped after every backward here, which were clipped once, with their step"
STILL_SCALED = (
    "this optimizer steps on gradients that are still multiplied by the loss scale: the scaled loss reaches its parameters, and "
    "{given}. It was so with Apex, and is left; step it by scaler.step, before update()"
)


def _not_given(review: Review) -> str:
    """What of Apex's an optimizer did not go through."""
    sets_up = next(iter(review.calls_before(INITIALIZE)), None)
    return "initialize was not given it" if sets_up is not None else "no FP16_Optimizer wrapped it"


def _faults(review: Review, machine: Machine, before: bool = False) -> Iterator[Doubt]:
    not_given = _not_given(review)
    for place, tags in sorted(machine.seen.items(), key=lambda e: _order(e[0])):
        if place.what == "read" and not before and (_read_scaled_before(review, place) or _before_a_tpu_step(place)):
            continue
        if place.what == "read" and not before and left_its_branch(review, place.module, place.node):
            yield review.doubt(place.module, place.node, "AMP231", "gradients", LEFT_BRANCH)
        if place.what == "exchange":
            if UNSCALED in tags:
                said, weight = _exchanged(review, place)
                if before:
                    yield Doubt(place.module.path, getattr(place.node, "lineno", 1), "AMP239", "unscale_", said)
                else:
                    yield review.doubt(place.module, place.node, "AMP239", "unscale_", said, weight)
            continue
        if place.what == "kept":
            if before or (added_up(review, place.module) and not only_where_caught(place, tags)):
                yield left_over(review, place, tags, before)
            continue
        if tags & _OF_TWO and not before and never_two(review, place):
            tags = tags - _OF_TWO
        for message, verdict in _verdicts(place, tags):
            node, construct, said = place.node, _construct(place), message.replace("{given}", not_given)
            if before:
                line = getattr(node, "lineno", 1)
                yield Doubt(place.module.path, line, "AMP231", construct, said)
            elif verdict == "refuse":
                yield review.doubt(place.module, node, "AMP231", construct, message)
            elif message is STILL_SCALED:
                yield review.doubt(place.module, node, "AMP238", construct, said, "review")
            else:
                yield review.doubt(place.module, node, "AMP232", construct, message, "review", ("AMP219",))


def _exchanged(review: Review, place: Place) -> tuple[str, Verdict]:
    """What becomes of gradients that come from elsewhere once unscale_ has looked for infs; less, where it was so before."""
    message = (
        "gradients are replaced here after unscale_ has looked for infs in those of this process, and scaler.step does not look "
        "again: infs that come from another process are stepped on here while that one skips, and weights and scales part from "
        "then on. "
    )
    both = mixed(review)
    masters = both.floats(place.module) or both.asks(place.module)
    if masters:
        message += (
            "O2 stepped masters that were filled when scale_loss ended, so that what is put into .grad here had no effect; it is "
            "stepped now. "
        )
    if both.patches(place.module):
        message += "O1 looked no later either. "
    message += "Exchange before unscale_ where the scale makes no difference to the exchange, a sum or a mean"
    return message, "look" if both.patches(place.module) and not masters else "review"


def _order(place: Place) -> tuple[str, int, int, str, str]:
    line, column = getattr(place.node, "lineno", 0), getattr(place.node, "col_offset", 0)
    return place.module.path, line, column, place.what, place.ident


def _construct(place: Place) -> str:
    return {
        "read": "gradients",
        "inner": "torch.autograd.grad",
        "update": "scaler.update",
        "unscale": "scaler.unscale_",
    }.get(place.what, "optimizer.step")


def _verdicts(place: Place, tags: set[str]) -> Iterator[tuple[str, str]]:
    what = place.what
    if what == "backward" and tags & {"twice", "by two"}:
        yield "the loss would be scaled twice before its backward: the step divides by the scale once", "refuse"
    if what == "inner" and "twice" in tags:
        yield "the loss would be scaled twice before torch.autograd.grad: it carries the scale already", "refuse"
    if what == "update" and "nothing checked" in tags:
        yield "update() would be reached without a step or unscale_ since the last update(), which raises", "refuse"
    if what == "read" and SCALED in tags:
        yield "gradients would be read while they are still scaled: with Apex they were unscaled here", "refuse"
    if what == "read" and BOUND in tags:
        yield "gradients that do not carry the loss scale would be clipped to a bound times the scale", "refuse"
    if what == "plain step":
        if tags & {SCALED, STALE, MIXED}:
            yield "this optimizer would step by itself on gradients that are still scaled", "refuse"
        elif UNSCALED in tags:
            yield "this optimizer would step by itself after unscale_: overflows would no longer be skipped", "refuse"
        elif BESIDE in tags:
            yield STILL_SCALED, "review"
    if what == "unscale" and "twice" in tags:
        yield "unscale_ would be called twice for one optimizer without update() in between, which raises", "refuse"
    if what == "unscale" and "after step" in tags:
        yield "unscale_ would come after the step, without update() in between, which raises", "refuse"
    if what == "step" and "untrained" in tags:
        yield (
            "none of this optimizer's parameters takes a gradient, and scaler.step raises where there is none",
            "refuse",
        )
    if what == "step" and "not updated" in tags:
        yield "the scaler would step this optimizer again without update() since its last step, which raises", "refuse"
    if what == "step" and "other scaler" in tags:
        yield "another scaler unscaled these gradients than the one that steps: they would be divided twice", "refuse"
    if what == "unscale" and "other scaler" in tags:
        yield "another scaler unscaled these gradients already: they would be divided twice", "refuse"
    if what in ("step", "unscale"):
        yield from _gradients(what, tags)


def _gradients(what: str, tags: set[str]) -> Iterator[tuple[str, str]]:
    verb = "step" if what == "step" else "unscale_"
    if STALE in tags:
        yield f"update() may change the scale between the backward of these gradients and their {verb}", "refuse"
    if LEFT in tags:
        yield f"update() would come between unscale_ and this {verb}: these gradients would be divided twice", "refuse"
    if tags & {PLAIN, MIXED}:
        yield f"{verb} would divide by the scale what a backward without scale gave", "refuse"
    without = {t for t in tags if t.split()[0] in _NO_BACKWARD}
    if not without:
        return
    if without == tags:
        yield f"no backward of this scaler comes before this {verb} on any path", "refuse"
    elif f"{USED} again" in without:
        yield (
            f"the loop comes to this {verb} again without another backward: the gradients were divided already",
            "refuse",
        )
    elif f"{ZERO} {EMPTIED}" in without and what == "step":
        yield (
            "this optimizer would be stepped again after a step and zero_grad, with no backward between: no gradient is left, "
            "and scaler.step raises",
            "refuse",
        )
    elif any(t.endswith("skipped") for t in without) and what == "step":
        yield (
            "on a path that leaves the backward out, the scaler steps without gradients and raises "
            f"(No inf checks were recorded); {WITHOUT}",
            "review",
        )
    elif ZERO in without:
        yield (
            f"on a path on which no backward came since zero_grad, this {verb} finds no gradients, and scaler.step raises "
            f"(No inf checks were recorded); {WITHOUT}",
            "review",
        )


def _read_scaled_before(review: Review, place: Place) -> bool:
    """Whether a reader stood inside `with amp.scale_loss(...)` before: it saw scaled gradients then, too."""
    change = review.changes.get(place.module.path)
    stmt: ast.stmt | None = place.module.statement(place.node)
    module = place.module
    if change is not None and stmt is not None:
        stmt, module = change.was(stmt), change.before
    if stmt is None:
        return False
    scope_of = module.scope_of
    for parent in module.ancestors(stmt):
        if isinstance(parent, (ast.With, ast.AsyncWith)):
            for item in parent.items:
                call = item.context_expr
                if isinstance(call, ast.Call):
                    name = review.before.dotted(scope_of(call), call.func) or ast.unparse(call.func)
                    if name.rpartition(".")[2] == "scale_loss":
                        return True
    return False


def _before_a_tpu_step(place: Place) -> bool:
    """Whether a reader stands right before a step on a TPU (`xm.optimizer_step(optimizer)`), where Apex never came: a scaler
    is off there."""
    stmt: ast.AST | None = place.module.statement(place.node)
    while isinstance(stmt, (ast.Expr, ast.Assign, ast.If)):
        if later := place.module.following(stmt):
            return any(syntax.text(n.func).endswith("optimizer_step") for n in syntax.every(later[0], ast.Call))
        stmt = place.module.parents.get(stmt)
    return False


def _is_of_tests(module: Module) -> bool:
    """Whether a file is a test's, whose calls of methods by name come to many: what they run is followed from programs, too."""
    path = PurePosixPath(module.path)
    return path.stem.startswith("test_") or path.stem.endswith(("_test", "conftest"))
