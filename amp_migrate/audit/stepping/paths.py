"""Every path through one body, for a step that learns of tests itself (a call that is followed does) and for loops that
are known to have a turn: as `flow.walk`, with a say in each edge."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import TypeVar

from amp_migrate.audit.paths.facts import Facts, assigned, consistent, equals, forget, learned, told
from amp_migrate.audit.paths.flow import LIMIT, Edge, Graph, Node, TooManyPaths

S = TypeVar("S")


def explore(
    graph: Graph,
    start: Iterable[tuple[Facts, S]],
    step: Callable[[Node, Facts, S], Iterable[tuple[Facts, S]]],
    along: Callable[[Node, Edge, S], S | None],
    matters: Callable[[Facts], Facts] = lambda facts: facts,
    on_error: Callable[[S], Iterable[S]] = lambda state: (),
    limit: int = 4 * LIMIT,
    ways: dict[tuple[Edge, Facts], Facts | None] | None = None,
) -> list[tuple[Facts, S]]:
    """Facts and states with which a body ends.

    `along` gives the state on the way along an edge, None where that way is not gone; `matters` leaves of what is known
    what is worth remembering: paths that differ in nothing else are one path. `ways` keeps what is known along edges, for
    whatever state, where the same body is gone through again. Raises TooManyPaths: to forget what tests
    told would make paths of what cannot be.
    """
    gives: dict[ast.stmt, set[str]] = {}
    arrived: dict[Node, dict[tuple[Facts, S], None]] = {graph.entry: dict.fromkeys(start)}  # in order: sets have none
    ways = {} if ways is None else ways
    todo = [(graph.entry, item) for item in arrived[graph.entry]]

    def arrive(node: Node, facts: Facts, state: S) -> None:
        there = arrived.setdefault(node, {})
        if len(there) >= limit:
            raise TooManyPaths
        if (facts, state) not in there:
            there[facts, state] = None
            todo.append((node, (facts, state)))

    while todo:
        node, (facts, state) = todo.pop()
        stmt = node.stmt
        done = step(node, facts, state)
        after: list[tuple[Facts, Facts, S]] = []  # once the statement is done; where a loop ends without another turn
        for known, new in done:
            changed = known
            if stmt is not None and node.kind != "leave":
                if stmt not in gives:
                    gives[stmt] = assigned(stmt)
                changed = forget(known, gives[stmt])
                if isinstance(stmt, ast.Assign):
                    changed |= frozenset(told(stmt, known, changed))
            after.append((changed, known, new))
        for edge in node.after:
            if edge.error:
                for new in on_error(state):
                    if (passed := along(node, edge, new)) is not None:
                        arrive(edge.to, facts, passed)
                continue
            for changed, known, new in after:
                passed = along(node, edge, new)
                if passed is None:
                    continue
                now = known if node.kind == "next" and not edge.outcome else changed
                if (edge, now) not in ways:
                    ways[edge, now] = _told(edge, now, matters)
                if (then := ways[edge, now]) is not None:
                    arrive(edge.to, then, passed)
    return list(arrived.get(graph.exit, ()))


def _told(edge: Edge, facts: Facts, matters: Callable[[Facts], Facts]) -> Facts | None:
    """What is known on the way along an edge; None where its test cannot come out so."""
    now = facts if edge.test is None else learned(edge.test, edge.outcome, facts)
    return matters(equals(now)) if now is not None and consistent(now) else None
