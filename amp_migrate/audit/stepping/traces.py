"""What each function does to its optimizers, path by path, before and after: no step more, no step less.

A trace is what happens on one path through one function, each loop taken once: backward, step, zero_grad, clip. What is
folded (`if fp16:` and its `else`) does the same on each path that is left.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.paths.facts import NOTHING, Facts, consistent
from amp_migrate.audit.paths.flow import Edge, Node, TooManyPaths
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.stepping.bodies import Action, Bodies, Owner
from amp_migrate.audit.stepping.gradients import stepped_with_gradients
from amp_migrate.audit.stepping.handed import last_names, names_of
from amp_migrate.audit.stepping.objects import Objects
from amp_migrate.audit.stepping.paths import Paths

Token = tuple[str, str]
Trace = tuple[Token, ...]
Path = tuple[Trace, frozenset[int]]

_WHAT = {"backward": "a backward", "step": "a step", "zero_grad": "zero_grad", "clip": "clipping"}


def differences(review: Review, after: Bodies) -> Iterator[Doubt]:
    """What functions do less or more than before, in the program whose bodies these are."""
    objects = review.once(Objects, lambda: Objects(review.values_before))
    new = Bodies(after.objects, after)
    for change in review.changes.values():
        old = review.once((Bodies, change.before), lambda change=change: Bodies(objects, change.before))  # type: ignore[misc]
        pairs: list[tuple[Owner, Owner]] = [(change.before, change.after)]
        for now in change.after.functions:
            was = change.function_before(now)
            if was is not None:
                pairs.append((was, now))
        for one, other in pairs:
            if (one in old.own or other in new.own) and not _alike(change, old, one, new, other):
                traced = review.once((_Traces, one), lambda old=old, one=one: _Traces(old, one))  # type: ignore[misc]
                yield from _compared(change, traced, _Traces(new, other))


def _alike(change: Change, old: Bodies, one: Owner, new: Bodies, other: Owner) -> bool:
    """Whether a function is written as it was, and all that acts in it does what it did."""
    if isinstance(one, Module) or isinstance(other, Module):
        return False
    if change.before.source(one.node) != change.after.source(other.node):
        return False
    sides = ((old, one), (new, other))
    acts = [[bodies.by_node[n] for n in syntax.walk(f.node) if n in bodies.by_node] for bodies, f in sides]
    tokens = [
        [(a.kind, a.name, token(bodies, a)) for a in found] for (bodies, _), found in zip(sides, acts, strict=True)
    ]
    return tokens[0] == tokens[1]


class _Traces:
    """The traces of one function."""

    def __init__(self, bodies: Bodies, owner: Owner) -> None:
        self.bodies = bodies
        self.owner = owner
        self.cut: set[Trace] = set()
        self.given_up = False
        tests = (n.stmt for n in bodies.graph(owner).nodes if isinstance(n.stmt, ast.If))
        acting = (t for t in tests if any(n in bodies.by_node for n in syntax.walk(t)))
        self.asked = {name for t in acting for name in last_names(t.test)}
        self.found: set[Trace] = set()
        self.ends: list[tuple[Facts, Trace]] = []
        try:
            start: list[tuple[Facts, Path]] = [(NOTHING, ((), frozenset()))]
            ends = Paths(bodies.graph(owner), self._node, self._along, self._matters).explore(start)
            self.ends = [(facts, trace) for facts, (trace, _) in ends]
            self.found = {trace for _, trace in self.ends} | self.cut
        except (TooManyPaths, RecursionError):
            self.given_up = True

    def _matters(self, facts: Facts) -> Facts:
        """What is known of tests with something of the step in one of their arms."""
        return frozenset(f for f in facts if names_of(f[0]) & self.asked)

    def _node(self, node: Node, facts: Facts, state: Path) -> list[tuple[Facts, Path]]:
        if node.stmt is None or node.kind == "leave":
            return [(facts, state)]
        tokens = [t for a in self.bodies.actions(node.stmt) for t in [token(self.bodies, a)] if t is not None]
        return [(facts, ((*state[0], *tokens), state[1]))] if len(state[0]) < 40 else []

    def _along(self, node: Node, edge: Edge, state: Path) -> Path | None:
        trace, turns = state
        if isinstance(node.stmt, (ast.For, ast.AsyncFor, ast.While)):
            me = id(node.stmt)
            if edge.outcome is (me in turns):
                if edge.outcome and all(e.outcome for e in node.after if not e.error):
                    self.cut.add(trace)  # `while True:` never ends
                return None
            turns -= {me}
        if edge.outcome is False and stepped_with_gradients(node.stmt) is not None:
            return None  # a step that is left out for want of gradients did nothing
        if edge.loops and edge.to.stmt is not None:
            turns |= {id(edge.to.stmt)}
        return trace, turns

    def most(self, what: str) -> int:
        """How often something happens on the path where it happens most often."""
        return max((sum(t[0] == what for t in trace) for trace in self.found), default=0)


def token(bodies: Bodies, action: Action) -> Token | None:
    """What an action is in a trace."""
    if action.kind == "clip":
        return "clip", ""
    if action.kind == "tpu" and action.on is not None:
        return "step", syntax.text(action.on)
    if action.kind != "method" or action.on is None:
        return None
    scope = action.module.scope_of(action.node)
    if action.name == "backward":
        return "backward", ""
    if action.name == "zero_grad":
        return "zero_grad", ""
    if action.name == "step" and isinstance(action.node, ast.Call):
        role = bodies.objects.ref(scope, action.on, {}).role
        if role == "optimizer":
            return "step", syntax.text(action.on)
        if role == "scaler" and (action.node.args or action.node.keywords):
            given = action.node.args[0] if action.node.args else action.node.keywords[0].value
            return "step", syntax.text(given)
    return None


def _compared(change: Change, old: _Traces, new: _Traces) -> Iterator[Doubt]:
    if old.given_up or new.given_up:
        return
    for what, name in _WHAT.items():
        if old.most(what) > new.most(what):
            yield _doubt(change, old, what, f"{name} of this function would be lost")
    if any(_steps(t) and not _clips(t) and _clipped(facts, old) for facts, t in new.ends) or any(
        _clipped_before(facts, step, old) for facts, t in new.ends for step in _unclipped(t)
    ):
        yield _doubt(change, old, "clip", "on a path that steps, clipping would be left out")
    steps_before = {t for trace in old.found for t in trace if t[0] == "step"}
    steps_after = {t for trace in new.found for t in trace if t[0] == "step"}
    if old.most("step") and old.most("backward") and steps_before == steps_after:
        had = {_only(t) for t in old.found}
        if more := sorted({_only(t) for t in new.found} - had):
            much = "more often" if new.most("step") > old.most("step") else "in another order or on other paths"
            told = ", ".join(f"{n} {of}".strip() for n, of in more[0]) or "nothing"
            yield _doubt(change, old, "step", f"backward and step would come {much} than before: {told}")


def _only(trace: Trace) -> Trace:
    return tuple(t for t in trace if t[0] in ("backward", "step"))


def _clipped(facts: Facts, old: _Traces) -> bool:
    """Whether every path that steps, of those on which the tests came out alike, clipped before."""
    alike = [t for known, t in old.ends if _steps(t) and _go_together(known, facts)]
    return bool(alike) and all(_clips(t) for t in alike)


def _clipped_before(facts: Facts, step: Token, old: _Traces) -> bool:
    """Whether a clip came before this step on every such path before."""
    alike = [t for known, t in old.ends if step in t and _go_together(known, facts)]
    return bool(alike) and all(step not in _unclipped(t) for t in alike)


def _unclipped(trace: Trace) -> set[Token]:
    """The steps before which nothing on the path clips."""
    clips = [i for i, t in enumerate(trace) if t[0] == "clip"]
    return {t for i, t in enumerate(trace) if t[0] == "step" and not (clips and clips[0] < i)}


def _go_together(one: Facts, other: Facts) -> bool:
    return not any((fact, not holds) in other for fact, holds in one) and consistent(one | other)


def _steps(trace: Trace) -> bool:
    return any(t[0] == "step" for t in trace)


def _clips(trace: Trace) -> bool:
    return any(t[0] == "clip" for t in trace)


def _doubt(change: Change, old: _Traces, what: str, message: str) -> Doubt:
    lines = [a.node.lineno for a in old.bodies.own.get(old.owner, ()) if (t := token(old.bodies, a)) and t[0] == what]
    construct = {"clip": "clip_grad_norm_", "step": "optimizer.step"}.get(what, what)
    return Doubt(change.path, min(lines, default=1), "AMP231", construct, message)
