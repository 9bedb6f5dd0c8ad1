"""The order in which the statements of one body run, and what is known on each path through it.

`Graph` is the control flow of a function or a module; `walk` follows its paths with a state that the check defines,
remembering which tests came out how: where `if args.fp16:` was taken once, it is taken again until `args.fp16` changes.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from amp_migrate.audit.paths.facts import NOTHING, Facts, assigned, equals, forget, learned, outcome, told
from amp_migrate.audit.program import syntax

S = TypeVar("S")  # a check's own state: hashable
LIMIT = 64  # states at one place; beyond it tests are forgotten, beyond four times it the walk gives up


@dataclass(eq=False)
class Node:
    """One step: a simple statement, or the head of a compound one (its test, iterable, context managers)."""

    stmt: ast.stmt | None  # None: entry, exit, joins
    kind: str = (
        "run"  # "run", "test" (If, While), "next" (For), "enter" and "leave" (With), "entry", "exit", "raise", "join"
    )
    after: list[Edge] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<{self.kind} {getattr(self.stmt, 'lineno', '')}>"


@dataclass(eq=False)
class Edge:
    """To the next node; `test` comes out as `outcome` on the way. `loops`: back to the head of a loop."""

    to: Node
    test: ast.expr | None = None
    outcome: bool = True
    loops: bool = False
    error: bool = False  # an exception that the statement raised


class Graph:
    """The control flow of a body. `exit`: it ran to its end or returned; `error`: an exception left it.

    With `entered`, every loop runs at least once, and so does what happens every n-th turn: for checks that claim no
    fault on the strength of an empty loop.
    """

    def __init__(self, body: Sequence[ast.stmt], *, entered: bool = False) -> None:
        self._entered = entered
        self.entry = Node(None, "entry")
        self.exit = Node(None, "exit")
        self.error = Node(None, "raise")
        self.nodes: list[Node] = [self.entry]
        self._loops: list[tuple[Node, Node, int]] = []  # where continue and break go, through which `finally`
        self._handlers: list[Node] = []  # where an exception goes
        self._finally: list[tuple[list[ast.stmt], int]] = []
        last = self._block(body, [(self.entry, None, True)])
        self._join(last, self.exit)
        self.nodes += [self.exit, self.error]

    @cached_property
    def given(self) -> dict[Node, frozenset[str]]:
        """What the statement of a node assigns."""
        return {n: assigned(n.stmt) for n in self.nodes if n.stmt is not None}

    @cached_property
    def _by_statement(self) -> dict[ast.stmt, list[Node]]:
        found: dict[ast.stmt, list[Node]] = {}
        for node in self.nodes:
            if node.stmt is not None:
                found.setdefault(node.stmt, []).append(node)
        return found

    def of(self, stmt: ast.stmt | None) -> list[Node]:
        """The nodes of a statement."""
        return self._by_statement.get(stmt, []) if stmt is not None else []

    @cached_property
    def times(self) -> Counter[str]:
        """How many nodes assign a place."""
        return Counter(name for names in self.given.values() for name in names)

    Ends = list[tuple[Node, "ast.expr | None", bool]]

    def _node(self, stmt: ast.stmt | None, kind: str, ends: Ends) -> Node:
        node = Node(stmt, kind)
        self.nodes.append(node)
        self._join(ends, node)
        if stmt is not None and self._handlers:
            node.after.append(Edge(self._handlers[-1], error=True))
        return node

    @staticmethod
    def _join(ends: Ends, node: Node, loops: bool = False) -> None:
        for end, test, came_out in ends:
            end.after.append(Edge(node, test, came_out, loops))

    def _block(self, body: Sequence[ast.stmt], ends: Ends) -> Ends:
        for stmt in body:
            if not ends:
                break
            ends = self._statement(stmt, ends)
        return ends

    def _statement(self, stmt: ast.stmt, ends: Ends) -> Ends:
        if isinstance(stmt, ast.If):
            node = self._node(stmt, "test", ends)
            yes = self._block(stmt.body, [(node, stmt.test, True)])
            if self._entered and yes and not stmt.orelse and _now_and_then(stmt.test):
                return yes
            no = self._block(stmt.orelse, [(node, stmt.test, False)])
            return [*yes, *no]
        if isinstance(stmt, (ast.While, ast.For, ast.AsyncFor)):
            return self._loop(stmt, ends)
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            node = self._node(stmt, "enter", ends)
            inner = self._block(stmt.body, [(node, None, True)])
            if not inner:
                return []
            leave = self._node(stmt, "leave", inner)
            return [(leave, None, True)]
        if isinstance(stmt, ast.Try) or type(stmt).__name__ == "TryStar":
            return self._try(stmt, ends)  # type: ignore[arg-type]
        if isinstance(stmt, ast.Match):
            node = self._node(stmt, "run", ends)
            out: Graph.Ends = [(node, None, True)]
            for case in stmt.cases:
                out += self._block(case.body, [(node, None, True)])
            return out
        node = self._node(stmt, "run", ends)
        if isinstance(stmt, ast.Return):
            self._leave([(node, None, True)], self.exit, 0)
            return []
        if isinstance(stmt, ast.Raise):
            if not self._handlers:
                node.after.append(Edge(self.error, error=True))
            return []
        if isinstance(stmt, (ast.Break, ast.Continue)):
            if self._loops:
                head, after, depth = self._loops[-1]
                again = isinstance(stmt, ast.Continue)
                self._leave([(node, None, True)], head if again else after, depth, loops=again)
            return []
        if isinstance(stmt, ast.Assert):
            return [(node, stmt.test, True)]
        if never_returns(stmt):
            return []
        return [(node, None, True)]

    def _leave(self, ends: Ends, target: Node, depth: int, loops: bool = False) -> None:
        """Go to a target through the `finally` blocks opened since `depth`."""
        opened, handlers = self._finally, self._handlers
        for i in range(len(opened) - 1, depth - 1, -1):
            self._finally, self._handlers = opened[:i], handlers[: opened[i][1]]
            ends = self._block(opened[i][0], ends)
        self._finally, self._handlers = opened, handlers
        self._join(ends, target, loops)

    def _loop(self, stmt: ast.While | ast.For | ast.AsyncFor, ends: Ends) -> Ends:
        kind = "test" if isinstance(stmt, ast.While) else "next"
        head = self._node(stmt, kind, ends)
        after = Node(None, "join")
        self.nodes.append(after)
        test = stmt.test if isinstance(stmt, ast.While) else None
        again, start = head, [(head, test, True)]
        if isinstance(stmt, ast.For) and _of_one(stmt.iter):
            again = Node(stmt, kind)
            self.nodes.append(again)
        elif self._entered:
            again, first = Node(stmt, kind), Node(None, "join")
            self.nodes += [again, first]
            self._join(start, first)
            self._join([(again, test, True)], first)
            start = [(first, None, True)]
        self._loops.append((again, after, len(self._finally)))
        body = self._block(stmt.body, start)
        self._loops.pop()
        self._join(body, again, loops=True)
        endless = isinstance(stmt, ast.While) and isinstance(stmt.test, ast.Constant) and bool(stmt.test.value)
        done: Graph.Ends = [] if endless else [(again, test, False)]
        self._join(self._block(stmt.orelse, done), after)
        return [(after, None, True)] if endless is False or _breaks(stmt) else []

    def _try(self, stmt: ast.Try, ends: Ends) -> Ends:
        if stmt.finalbody:
            self._finally.append((stmt.finalbody, len(self._handlers)))
        caught = Node(None, "join")
        self.nodes.append(caught)
        if stmt.handlers:
            self._handlers.append(caught)
        start = self._node(None, "join", ends)
        if stmt.handlers:
            start.after.append(Edge(caught, error=True))
        body = self._block(stmt.body, [(start, None, True)])
        if stmt.handlers:
            self._handlers.pop()
        body = self._block(stmt.orelse, body)
        out = list(body)
        for handler in stmt.handlers:
            out += self._block(handler.body, [(caught, None, True)])
        if stmt.finalbody:
            self._finally.pop()
            out = self._block(stmt.finalbody, out)
        return out


def _now_and_then(test: ast.expr) -> bool:
    """`(step + 1) % accumulation_steps == 0`: true before long."""
    left = (n.left for n in syntax.every(test, ast.BinOp) if isinstance(n.op, ast.Mod))
    texts = (isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str)) for n in left)
    return not all(texts)


def _of_one(node: ast.expr) -> bool:
    """Whether a loop over something runs its body once, whatever the program does: `for _ in range(1)`, `for o in [optimizer]`."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return len(node.elts) == 1 and not isinstance(node.elts[0], ast.Starred)
    if not isinstance(node, ast.Call) or node.keywords or not node.args:
        return False
    name = syntax.text(node.func)
    if name == "range":
        return syntax.text(node) in ("range(1)", "range(0, 1)")
    return name in ("enumerate", "zip", "iter", "list", "tuple", "reversed") and all(map(_of_one, node.args))


def _breaks(loop: ast.stmt) -> bool:
    """Whether a `break` of this loop's own stands in it."""
    stack: list[ast.AST] = list(syntax.children(loop))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Break):
            return True
        if not isinstance(
            node, (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        ):
            stack += syntax.children(node)
    return False


def never_returns(stmt: ast.stmt) -> bool:
    """`sys.exit()`, `exit()`, `os._exit()`, `parser.error()`: nothing after them runs."""
    if not isinstance(stmt, ast.Expr) or not isinstance(stmt.value, ast.Call):
        return False
    name = syntax.text(stmt.value.func)
    return name in ("sys.exit", "exit", "quit", "os._exit", "parser.error", "os.abort")


# -- walking ------------------------------------------------------------------------------------------------------


class TooManyPaths(Exception):
    """A body has more distinct paths than the walk follows: what was asked of it is not answered."""


def walk(
    graph: Graph,
    start: Iterable[tuple[Facts, S]],
    step: Callable[[Node, S], Iterable[S]],
    *,
    on_error: Callable[[Node, S], Iterable[S]] | None = None,
    limit: int = LIMIT,
    about: Callable[[str], bool] | None = None,
    seeing: Callable[[Node, S, Facts], Iterable[S]] | None = None,
    making: Callable[[ast.Assign], Iterable[tuple[str, bool, bool]]] = lambda _: (),
    settings: Settings | None = None,
) -> Walk[S]:
    """Follow every path from the entry until nothing new is met.

    `step` gives the states after a node for a state before it; an empty result ends the path. An exception leaves a
    statement with the states that `on_error` gives (by default the state before the statement).
    With `about`, only facts that it wants are kept, and of these also what assignments tell (`fp16 = args.fp16`), and what
    `making` knows of the objects that they make (and whether it is a setting of theirs); `settings` says whether a setting
    keeps the value that is written. `seeing` is a `step` that is told the facts, too. Raises TooManyPaths.
    """
    # In the order of arrival: where there are too many, which are kept must not depend on how strings hash.
    arrived: dict[Node, dict[tuple[Facts, S], None]] = {graph.entry: dict.fromkeys(start)}
    todo = [(graph.entry, item) for item in arrived[graph.entry]]
    blunt: set[Node] = set()
    given, times = graph.given, graph.times
    ways: dict[tuple[Edge, Facts], Facts | None] = {}  # what is known along an edge, for whatever state
    while todo:
        node, (facts, state) = todo.pop()
        known = forget(facts, given[node]) if node.stmt is not None and node.kind != "leave" else facts
        if about is not None and isinstance(node.stmt, ast.Assign):
            setting = _is_setting(node.stmt, times)
            tells = (*((*f, setting) for f in told(node.stmt, facts, known)), *making(node.stmt))
            wanted = [f for f in tells if about(f[0]) and (not f[2] or settings is None or settings.hold())]
            known |= frozenset(f[:2] for f in wanted)
        results = list(step(node, state) if seeing is None else seeing(node, state, facts))
        for edge in node.after:
            leaving = (on_error(node, state) if on_error is not None else [state]) if edge.error else results
            way = edge, facts if edge.error else known
            if way not in ways:
                ways[way] = _along(*way, about)
            if (now := ways[way]) is None:
                continue
            for new in leaving:
                there = arrived.setdefault(edge.to, {})
                if edge.to in blunt:
                    now = NOTHING
                if (now, new) in there:
                    continue
                if len(there) >= limit and edge.to not in blunt:
                    blunt.add(edge.to)
                    there_states = dict.fromkeys(s for _, s in there)
                    there.clear()
                    there |= dict.fromkeys((NOTHING, s) for s in there_states)
                    todo += [(edge.to, item) for item in there]
                    now = NOTHING
                if len(there) >= limit * 4:
                    raise TooManyPaths
                if (now, new) not in there:
                    there[now, new] = None
                    todo.append((edge.to, (now, new)))
    return Walk(graph, arrived, bool(blunt))


def _along(edge: Edge, facts: Facts, about: Callable[[str], bool] | None) -> Facts | None:
    """What is known on the way along an edge; None where its test cannot come out so."""
    now = facts if edge.test is None else learned(edge.test, edge.outcome, facts)
    return now if now is None or about is None else frozenset(f for f in equals(now) if about(f[0]))


@dataclass
class Settings:
    """Whether what a program sets once and asks for is taken to stay as it is written; `asked`: whether that mattered."""

    kept: bool
    asked: bool = False

    def hold(self) -> bool:
        self.asked = True
        return self.kept


def _is_setting(stmt: ast.Assign, times: Mapping[str, int]) -> bool:
    """`MODE = "train"`, set nowhere else and asked for: whoever runs the program writes another value there."""
    value = stmt.value
    return isinstance(value, ast.Constant) and value.value is not None and all(times[n] == 1 for n in assigned(stmt))


@dataclass
class Walk(Generic[S]):
    """What a walk met: the facts and states with which each node is reached; whether facts had to be forgotten."""

    graph: Graph
    arrived: dict[Node, dict[tuple[Facts, S], None]]
    blunt: bool = False

    def at(self, node: Node) -> list[S]:
        """The states with which a node is reached, in the order in which they came."""
        return list(dict.fromkeys(state for _, state in self.arrived.get(node, ())))

    @property
    def ends(self) -> list[tuple[Facts, S]]:
        """Facts and states with which the body ends without an exception."""
        return list(self.arrived.get(self.graph.exit, ()))


__all__ = [
    "NOTHING",
    "Edge",
    "Facts",
    "Graph",
    "Node",
    "TooManyPaths",
    "Walk",
    "assigned",
    "forget",
    "learned",
    "outcome",
    "walk",
]
