"""The order in which the statements of one body run, and what is known on each path through it.

`Graph` is the control flow of a function or a module; `walk` follows its paths with a state that the check defines,
remembering which tests came out how: where `if args.fp16:` was taken once, it is taken again until `args.fp16` changes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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
    """The control flow of a body. `exit`: it ran to its end or returned; `error`: an exception left it."""

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self.entry = Node(None, "entry")
        self.exit = Node(None, "exit")
        self.error = Node(None, "raise")
        self.nodes: list[Node] = [self.entry]
        self._loops: list[tuple[Node, Node]] = []  # where continue and break go
        self._handlers: list[Node] = []  # where an exception goes
        self._finally: list[tuple[list[ast.stmt], int]] = []
        last = self._block(body, [(self.entry, None, True)])
        self._join(last, self.exit)
        self.nodes += [self.exit, self.error]

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
        for end, test, outcome in ends:
            end.after.append(Edge(node, test, outcome, loops))

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
            no = self._block(stmt.orelse, [(node, stmt.test, False)])
            return [*yes, *no]
        if isinstance(stmt, ast.While | ast.For | ast.AsyncFor):
            return self._loop(stmt, ends)
        if isinstance(stmt, ast.With | ast.AsyncWith):
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
        if isinstance(stmt, ast.Break | ast.Continue):
            if self._loops:
                target, depth = self._loop_target(isinstance(stmt, ast.Break))
                self._leave([(node, None, True)], target, depth, loops=isinstance(stmt, ast.Continue))
            return []
        if isinstance(stmt, ast.Assert):
            return [(node, stmt.test, True)]
        if _never_returns(stmt):
            return []
        return [(node, None, True)]

    def _loop_target(self, is_break: bool) -> tuple[Node, int]:
        head, after = self._loops[-1]
        return (after if is_break else head), self._depths[-1]

    _depths: list[int]

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
        if not hasattr(self, "_depths"):
            self._depths = []
        self._loops.append((head, after))
        self._depths.append(len(self._finally))
        body = self._block(stmt.body, [(head, test, True)])
        self._loops.pop()
        self._depths.pop()
        self._join(body, head, loops=True)
        endless = isinstance(stmt, ast.While) and isinstance(stmt.test, ast.Constant) and bool(stmt.test.value)
        done: Graph.Ends = [] if endless else [(head, test, False)]
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


def _breaks(loop: ast.stmt) -> bool:
    """Whether a `break` of this loop's own stands in it."""
    stack: list[ast.AST] = list(ast.iter_child_nodes(loop))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Break):
            return True
        if not isinstance(
            node, ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ):
            stack += ast.iter_child_nodes(node)
    return False


def _never_returns(stmt: ast.stmt) -> bool:
    """`sys.exit()`, `exit()`, `os._exit()`, `parser.error()`: nothing after them runs."""
    if not isinstance(stmt, ast.Expr) or not isinstance(stmt.value, ast.Call):
        return False
    name = ast.unparse(stmt.value.func)
    return name in ("sys.exit", "exit", "quit", "os._exit", "parser.error", "os.abort")


# -- what is known of tests ---------------------------------------------------------------------------------------

Facts = frozenset[tuple[str, bool]]
NOTHING: Facts = frozenset()


def outcome(test: ast.expr, facts: Facts) -> bool | None:
    """How a test comes out, given how others came out; None where that is open."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = outcome(test.operand, facts)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        found = [outcome(v, facts) for v in test.values]
        decisive = isinstance(test.op, ast.Or)
        if decisive in found:
            return decisive
        if None not in found:
            return not decisive
    key, positive = _key(test)
    if (key, positive) in facts:
        return True
    if (key, not positive) in facts:
        return False
    return _excluded(test, facts)


def _excluded(test: ast.expr, facts: Facts) -> bool | None:
    """`x == "a"` is false where `x == "b"` holds; so is a test of `x` where `x is None`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        left = ast.unparse(test.left)
        for known, holds in facts:
            if not holds or not known.startswith(f"{left} == ") or not isinstance(test.ops[0], ast.Eq | ast.NotEq):
                continue
            try:
                value = ast.literal_eval(known[len(left) + 4 :])
            except (ValueError, SyntaxError):
                continue
            return bool((value == test.comparators[0].value) == isinstance(test.ops[0], ast.Eq))
    if isinstance(test, ast.Name | ast.Attribute) and (f"{ast.unparse(test)} is None", True) in facts:
        return False
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is | ast.IsNot):
        if ast.unparse(test.comparators[0]) == "None" and (ast.unparse(test.left), True) in facts:
            return isinstance(test.ops[0], ast.IsNot)
    return None


def learned(test: ast.expr, came_out: bool, facts: Facts) -> Facts | None:
    """The facts once a test came out; None where it cannot come out so."""
    known = outcome(test, facts)
    if known is not None and known is not came_out:
        return None
    return facts | frozenset(_implied(test, came_out, facts))


def _implied(test: ast.expr, came_out: bool, facts: Facts) -> Iterable[tuple[str, bool]]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _implied(test.operand, not came_out, facts)
        return
    if isinstance(test, ast.BoolOp):
        if came_out is isinstance(test.op, ast.And):
            for value in test.values:
                yield from _implied(value, came_out, facts)
            return
        open_ = [v for v in test.values if outcome(v, facts) is None]
        if len(open_) == 1:
            yield from _implied(open_[0], came_out, facts)
    if _stable(test):
        key, positive = _key(test)
        yield key, positive is came_out


def _key(test: ast.expr) -> tuple[str, bool]:
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        op = test.ops[0]
        for negative, sign in ((ast.NotEq, "=="), (ast.IsNot, "is"), (ast.NotIn, "in")):
            if isinstance(op, negative):
                return f"{ast.unparse(test.left)} {sign} {ast.unparse(test.comparators[0])}", False
    return ast.unparse(test), True


_ASKING = frozenset(
    {"hasattr", "isinstance", "is_enabled", "is_initialized", "is_available", "callable", "bool", "len"}
)


def _stable(test: ast.expr) -> bool:
    """Whether a test comes out the same when it is asked again: it calls nothing but what only asks."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name not in _ASKING:
                return False
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.BinOp):
            if not isinstance(node, ast.BinOp):
                return False
    return True


def assigned(stmt: ast.stmt) -> set[str]:
    """Names and attributes, as they are written, that a statement (or the head of a compound one) gives a value."""
    heads: list[ast.AST]
    if isinstance(stmt, ast.For | ast.AsyncFor):
        heads = [stmt.target]
    elif isinstance(stmt, ast.With | ast.AsyncWith):
        heads = [i.optional_vars for i in stmt.items if i.optional_vars is not None]
    elif isinstance(stmt, ast.If | ast.While | ast.Try | ast.Match):
        heads = (
            [n for n in ast.walk(getattr(stmt, "test", stmt)) if isinstance(n, ast.NamedExpr)]
            if hasattr(stmt, "test")
            else []
        )
    elif isinstance(stmt, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {stmt.name}
    else:
        heads = [stmt]
    names: set[str] = set()
    for head in heads:
        for node in ast.walk(head):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                names.add(ast.unparse(node))
            elif isinstance(node, ast.alias):
                names.add((node.asname or node.name).split(".")[0])
    return names


def forget(facts: Facts, names: set[str]) -> Facts:
    """The facts that still hold once names have other values."""
    if not names or not facts:
        return facts
    return frozenset(f for f in facts if not any(_reads(f[0], name) for name in names))


def _reads(text: str, name: str) -> bool:
    start = text.find(name)
    while start != -1:
        before = text[start - 1] if start else " "
        after = text[start + len(name)] if start + len(name) < len(text) else " "
        if not (before.isalnum() or before in "_.") and not (after.isalnum() or after == "_"):
            return True
        start = text.find(name, start + 1)
    return False


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
) -> Walk[S]:
    """Follow every path from the entry until nothing new is met.

    `step` gives the states after a node for a state before it; an empty result ends the path. An exception leaves a
    statement with the states that `on_error` gives (by default the state before the statement).
    Raises TooManyPaths.
    """
    arrived: dict[Node, set[tuple[Facts, S]]] = {graph.entry: set(start)}
    todo = [(graph.entry, item) for item in arrived[graph.entry]]
    blunt: set[Node] = set()
    while todo:
        node, (facts, state) = todo.pop()
        known = forget(facts, assigned(node.stmt)) if node.stmt is not None and node.kind != "leave" else facts
        results = list(step(node, state))
        for edge in node.after:
            leaving = (on_error(node, state) if on_error is not None else [state]) if edge.error else results
            for new in leaving:
                now: Facts | None = facts if edge.error else known
                if edge.test is not None and now is not None:
                    now = learned(edge.test, edge.outcome, now)
                if now is None:
                    continue
                there = arrived.setdefault(edge.to, set())
                if edge.to in blunt:
                    now = NOTHING
                if (now, new) in there:
                    continue
                if len(there) >= limit and edge.to not in blunt:
                    blunt.add(edge.to)
                    there_states = {s for _, s in there}
                    there.clear()
                    there |= {(NOTHING, s) for s in there_states}
                    todo += [(edge.to, item) for item in there]
                    now = NOTHING
                if len(there) >= limit * 4:
                    raise TooManyPaths
                if (now, new) not in there:
                    there.add((now, new))
                    todo.append((edge.to, (now, new)))
    return Walk(graph, arrived)


@dataclass
class Walk(Generic[S]):
    """What a walk met: the facts and states with which each node is reached."""

    graph: Graph
    arrived: dict[Node, set[tuple[Facts, S]]]

    def at(self, node: Node) -> set[S]:
        return {state for _, state in self.arrived.get(node, ())}

    @property
    def ends(self) -> set[tuple[Facts, S]]:
        """Facts and states with which the body ends without an exception."""
        return self.arrived.get(self.graph.exit, set())
