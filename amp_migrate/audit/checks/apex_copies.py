"""Where a network ran on old weights under O1, since its half copies outlived a step, it runs on current ones now: told.

O1 kept the half copy of each weight until an `amp.scale_loss` ended. A forward after that, or one whose loss goes backward
by itself, leaves copies; if the optimizer steps before the next `amp.scale_loss` ends, the forward between computes with the
weights from before the step. Each autocast region makes its own. Followed: the loop around each `amp.scale_loss`, or around
each backward where nothing scales a loss, with the functions and networks it calls (`passes.py`); not proved: what is out of
sight, and where a backward pass ended in an error that is caught.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.effects import Called, Effects
from amp_migrate.audit.sites.happened import Blind, Stale, State
from amp_migrate.audit.sites.passes import MOST, Passes, _Call
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.sites.weights import Frame, Place, Value, Weights, covers, overlap
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP538",
        title="a network ran on weights from before a step, and does so no more",
        construct="a call of the model",
        apex="O1 kept its half copies of the weights until an amp.scale_loss ended: a forward between that and the step left copies "
        "which the next forward took, whatever the step had written.",
        native="Each autocast region makes its copies anew: every forward computes with the weights as they are.",
        why="The losses differ from those of Apex from there on, and the new ones are right.",
    ),
)
SCALING = "scale_loss"
DATA_PARALLEL = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    if not any(s.patches for s in both.removed):
        return
    scaled = any(m.calls_named.get(SCALING) for m in review.before.having(SCALING))
    passes: Copies | None = None
    told: set[ast.AST] = set()
    for path in review.changes:
        module = review.before.modules[path]
        if (SCALING not in module.text and scaled) or not any(s.usually_patches for s in both.near_setups(module)):
            continue
        for body in _loops(module, _scales if scaled else _goes_backward):
            if passes is None:
                passes = Copies(both.before.forwards, both.before.regions, cleared=False)
            for stale in passes.run(module, body, MOST):
                place = both.now(stale.module, stale.node)
                if place is not None and stale.node not in told and not both.made_before(stale.module, stale.node):
                    told.add(stale.node)
                    message = _message(stale, scaled, replicated=_replicated(review, passes.weights, stale))
                    yield review.doubt(*place, "AMP538", "a call of the model", message, "look")


def _replicated(review: Review, weights: Weights, stale: Stale) -> bool:
    """Whether DataParallel may run a network on several devices: the weights of its replicas are tensors, and O1 kept copies of
    parameters only."""
    ran = weights.network(Frame(stale.module.scope_of(stale.node)), stale.node.func)
    for module, call, _ in review.calls_before(*DATA_PARALLEL):
        on = argument(call, "device_ids", 1)
        alone = isinstance(on, (ast.List, ast.Tuple)) and len(on.elts) == 1
        wrapped = weights.network(Frame(module.scope_of(call)), call.args[0]) if call.args and not alone else ()
        if any(overlap(one, other) for one in ran for other in wrapped):
            return True
    return False


def _message(stale: Stale, scaled: bool, *, replicated: bool) -> str:
    module, node = stale.wrote
    left = "a forward between amp.scale_loss and there had left them" if scaled else "only amp.scale_loss drops them"
    on = "on one device, where nn.DataParallel makes no replicas, " if replicated else ""
    return (
        f"{on}{syntax.text(stale.node.func)} ran on half copies of its weights under O1 that were made before "
        f"{module.path}:{getattr(node, 'lineno', 1)} wrote into them ({stale.written}): {left}. It runs on the weights "
        "as they are now, so that the losses differ from those of Apex"
    )


def _loops(module: Module, trains: Callable[[ast.stmt], bool]) -> list[list[ast.stmt]]:
    """The outermost loops of functions around the places that train; the bodies of functions without one, twice."""
    found: dict[ast.AST, list[ast.stmt]] = {}
    for stmt in syntax.walk(module.tree):
        if not isinstance(stmt, ast.stmt) or not trains(stmt):
            continue
        function: Function | None = module.function_around(stmt)
        outermost: ast.stmt | None = None
        for at in module.ancestors(stmt):
            if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                break
            if isinstance(at, (ast.For, ast.AsyncFor, ast.While)):
                outermost = at
        if outermost is not None:
            found[outermost] = [outermost]
        elif function is not None:
            found[function.node] = [*function.node.body, *function.node.body]
    return list(found.values())


def _goes_backward(stmt: ast.stmt) -> bool:
    return (
        isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call) and syntax.last(stmt.value.func) == "backward"
    )


def _scales(stmt: ast.stmt) -> bool:
    if not isinstance(stmt, (ast.With, ast.AsyncWith)):
        return False
    return any(isinstance(i.context_expr, ast.Call) and syntax.last(i.context_expr.func) == SCALING for i in stmt.items)


def _any(body: list[ast.stmt], name: str) -> bool:
    """Whether something of a name is called in a block."""
    return any(syntax.last(n.func) == name for s in body for n in syntax.every(s, ast.Call))


class _Written(Effects):
    """What calls in a loop that trains write into weights."""

    def written(self, frame: Frame, call: ast.Call, last: str) -> frozenset[Place]:
        if last == "load_state_dict":
            return frozenset()  # most often of a network that was just made, or before the training
        return super().written(frame, call, last)


class Copies(Passes):
    """The half copies of O1: kept until a scaled loss has gone backward; those made without gradients only for such runs."""

    effects_of = _Written
    each_run = True

    def _with(self, at: _Call, stmt: ast.With | ast.AsyncWith) -> None:
        super()._with(at, stmt)
        if _scales(stmt) and not self.state.over:
            self.happened += 1
            self.state = State()

    def _either(self, at: _Call, bodies: list[list[ast.stmt]]) -> None:
        scaled = [b for b in bodies if _any(b, SCALING)]
        if scaled:  # Apex is off where the other branch goes backward by itself; without any, no step writes a thing
            bodies = [b for b in bodies if b in scaled or (b and not _any(b, "backward"))]
        super()._either(at, bodies)

    def _caught(self, stmt: ast.Try) -> list[list[ast.stmt]]:
        """What is told is what each run does: no step that was left without its backward pass by an error."""
        trains = [*stmt.body, *stmt.orelse]
        return [] if _any(trains, SCALING) or _any(trains, "backward") else super()._caught(stmt)

    def _assigned(self, at: _Call, stmt: ast.stmt) -> None:
        """Only calls are followed: what is assigned is most often a result, not a weight."""

    def _ran_blind(self, at: _Call, call: ast.Call, places: frozenset[Place], followed: bool) -> None:
        return

    def _run(self, at: _Call, call: ast.Call, network: Value | None, functions: Sequence[Called]) -> None:
        places = network.places if network is not None else frozenset[Place]()
        for place in places:
            if self.gradless:
                if place not in self.state.ran:
                    self.state.blind[place] = Blind(at.frame.scope.module, call)
                continue
            for blind in [b for b in self.state.blind if covers(b, place) or covers(place, b)]:
                del self.state.blind[blind]  # it has no history: O1 made another
                self.state.ran.pop(blind, None)
                self.state.stale = {
                    p: w for p, w in self.state.stale.items() if not covers(blind, p) and not covers(p, blind)
                }
        super()._run(at, call, network, functions)
