"""Every path through one body, for a step that learns of tests itself (a call that is followed does) and for loops that
are known to have a turn: as `flow.walk`, with a say in each edge."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from amp_migrate.audit.paths.facts import NOTHING, Facts, assigned, consistent, equals, forget, learned, told
from amp_migrate.audit.paths.flow import LIMIT, Edge, Graph, Node, TooManyPaths

S = TypeVar("S")
Ways = dict[tuple[Edge, Facts], Facts | None]


@dataclass(eq=False, slots=True)
class At(Generic[S]):
    """A node that a path comes to, with what is known there; one for all paths that know the same."""

    node: Node
    facts: Facts
    state: S
    after: list[At[S]] | None = None  # found out when a path first comes by


class Paths(Generic[S]):
    """The paths through a body, each followed once from each place on, from whatever start it comes there.

    `along` gives the state on the way along an edge, None where that way is not gone; `matters` leaves of what is known
    what is worth remembering: paths that differ in nothing else are one path. `ways` keeps what is known along edges,
    for whatever state; `begun` is what is known of a loop whose turn begins, as the state tells which that is.
    """

    def __init__(
        self,
        graph: Graph,
        step: Callable[[Node, Facts, S], Iterable[tuple[Facts, S]]],
        along: Callable[[Node, Edge, S], S | None],
        matters: Callable[[Facts], Facts] = lambda facts: facts,
        on_error: Callable[[S], Iterable[S]] = lambda state: (),
        ways: Ways | None = None,
        begun: Callable[[ast.For, S], Facts] = lambda loop, state: NOTHING,
    ) -> None:
        self.graph = graph
        self._step = step
        self._along = along
        self._matters = matters
        self._on_error = on_error
        self._begun = begun
        self._ways: Ways = {} if ways is None else ways
        self._at: dict[tuple[Node, Facts, S], At[S]] = {}

    def explore(self, start: Iterable[tuple[Facts, S]], limit: int = 16 * LIMIT) -> list[tuple[Facts, S]]:
        """Facts and states with which the body ends. Raises TooManyPaths: to forget what tests told would make paths of
        what cannot be."""
        first = dict.fromkeys(self._place(self.graph.entry, *item) for item in start)  # in order
        arrived: dict[Node, dict[At[S], None]] = {self.graph.entry: first}
        todo = list(first)
        while todo:
            at = todo.pop()
            if at.after is None:
                at.after = self._after(at.node, at.facts, at.state)
            for further in at.after:
                if further.node not in arrived:
                    arrived[further.node] = {}
                there = arrived[further.node]
                if len(there) >= limit:
                    raise TooManyPaths
                if further not in there:
                    there[further] = None
                    todo.append(further)
        return [(at.facts, at.state) for at in arrived.get(self.graph.exit, ())]

    def _place(self, node: Node, facts: Facts, state: S) -> At[S]:
        known = self._at.get((node, facts, state))
        if known is None:
            known = self._at[node, facts, state] = At(node, facts, state)
        return known

    def _after(self, node: Node, facts: Facts, state: S) -> list[At[S]]:
        """Where a path goes on, with what is known there."""
        stmt = node.stmt
        found: list[At[S]] = []
        after: list[tuple[Facts, Facts, S]] = []  # once the statement is done; where a loop ends without another turn
        for known, new in self._step(node, facts, state):
            changed = known
            if stmt is not None and node.kind != "leave":
                changed = forget(known, assigned(stmt))
                if isinstance(stmt, ast.Assign):
                    changed |= frozenset(told(stmt, known, changed))
                elif isinstance(stmt, ast.For):
                    changed |= self._begun(stmt, new)
            after.append((changed, known, new))
        for edge in node.after:
            if edge.error:
                for new in self._on_error(state):
                    if (passed := self._along(node, edge, new)) is not None:
                        found.append(self._place(edge.to, facts, passed))
                continue
            for changed, known, new in after:
                passed = self._along(node, edge, new)
                if passed is None:
                    continue
                now = known if node.kind == "next" and not edge.outcome else changed
                if (edge, now) not in self._ways:
                    self._ways[edge, now] = _told(edge, now, self._matters)
                if (then := self._ways[edge, now]) is not None:
                    found.append(self._place(edge.to, then, passed))
        return found


def _told(edge: Edge, facts: Facts, matters: Callable[[Facts], Facts]) -> Facts | None:
    """What is known on the way along an edge; None where its test cannot come out so."""
    now = facts if edge.test is None else learned(edge.test, edge.outcome, facts)
    return matters(equals(now)) if now is not None and consistent(now) else None
