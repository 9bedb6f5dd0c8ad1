"""Places that hold values, as a body writes them (`scaler`, `self.scaler`, `state["scaler"]`), and what happens to them in order."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.flow import Graph, Node
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import COMPREHENSIONS, Function, Module, Scope

Kind = Literal["read", "store", "delete", "call", "mention"]
Guards = tuple[tuple[ast.expr, bool], ...]  # tests inside an expression that came out so where a part of it runs


@dataclass(eq=False, slots=True)  # not frozen: that makes each of them, and there are many, three times as dear
class Event:
    """One thing that happens to a place in a statement; `mention`: a function is handed on, not called."""

    kind: Kind
    node: ast.expr | ast.stmt
    text: str = ""
    guards: Guards = ()


@dataclass(frozen=True, eq=False)
class Body:
    """The statements of a function, or of a module."""

    module: Module
    function: Function | None

    @property
    def scope(self) -> Scope:
        return self.function.scope if self.function is not None else self.module.top

    @property
    def statements(self) -> list[ast.stmt]:
        return self.function.node.body if self.function is not None else self.module.tree.body

    @cached_property
    def parameters(self) -> frozenset[str]:
        if self.function is None:
            return frozenset()
        a = self.function.node.args
        extra = [x.arg for x in (a.vararg, a.kwarg) if x is not None]
        return frozenset([*(p.arg for p in self.function.parameters), *extra])

    @cached_property
    def graph(self) -> Graph:
        return Graph(self.statements, entered=True)

    def events(self, node: Node) -> list[Event]:
        """What happens at a node, in the order in which Python evaluates."""
        if node.stmt is None or node.kind == "leave":
            return []
        return self.of(node.stmt)

    @kept
    def of(self, stmt: ast.stmt) -> list[Event]:
        """What happens at a statement, less what happens in its blocks."""
        found: list[Event] = []
        _statement(stmt, found)
        return found

    @cached_property
    def everything(self) -> Sequence[tuple[ast.stmt, Event]]:
        """All events of the body."""
        return [(stmt, event) for stmt in own_statements(self.statements) for event in self.of(stmt)]

    @cached_property
    def running(self) -> Sequence[tuple[ast.stmt, Event]]:
        """What runs other code, or is handed to it, or puts an item where it is not known which."""
        kinds = ("call", "mention")
        return [
            (s, e) for s, e in self.everything if e.kind in kinds or (e.kind == "store" and e.text.endswith("[...]"))
        ]

    def about(self, text: str) -> Sequence[tuple[ast.stmt, Event]]:
        """What happens to one place itself."""
        return self._by_text.get(text, ())

    def gives_plainly(self, place: str) -> bool:
        """Whether one of a module's own statements gives a place a value, whatever comes, and none takes it away."""
        happens = self.about(place)
        own = set(self.statements) if self.function is None else set[ast.stmt]()
        given = any(event.kind == "store" and not event.guards and stmt in own for stmt, event in happens)
        return given and all(event.kind != "delete" for _, event in happens)

    @cached_property
    def _by_text(self) -> dict[str, list[tuple[ast.stmt, Event]]]:
        found: dict[str, list[tuple[ast.stmt, Event]]] = {}
        for stmt, event in self.everything:
            if event.kind in ("read", "store", "delete"):
                found.setdefault(event.text, []).append((stmt, event))
        return found


_COMPOUND = frozenset(
    (
        *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match),
        *([ast.TryStar] if hasattr(ast, "TryStar") else []),
    )
)


def own_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement of a body: not those of functions and classes defined in it."""
    waiting = body[::-1]  # no recursion: a chain of `elif` is as deep as it is long
    while waiting:
        stmt = waiting.pop()
        yield stmt
        if type(stmt) not in _COMPOUND:
            continue
        inner: list[ast.stmt] = []
        for name in ("body", "orelse", "finalbody"):
            inner += getattr(stmt, name, None) or ()
        for part in (*getattr(stmt, "handlers", []), *getattr(stmt, "cases", [])):
            inner += part.body
        waiting += inner[::-1]


def place_of(expr: ast.AST) -> str | None:
    """The text of an expression that names a place: a name, or attributes and constant items of one."""
    at: Any = expr
    while (kind := type(at)) is ast.Attribute or (kind is ast.Subscript and _is_key(at.slice)):
        at = at.value
    if isinstance(expr, ast.Name):
        return expr.id
    return syntax.text(expr) if kind is ast.Name else None


def _is_key(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Constant) and isinstance(expr.value, str)


def root(text: str) -> str:
    """The name that a place starts with."""
    for i, c in enumerate(text):
        if c in ".[":
            return text[:i]
    return text


def below(text: str, place: str) -> bool:
    """Whether a place is an attribute or item of another, or that itself."""
    return text == place or (text.startswith(place) and text[len(place)] in ".[")


def _statement(stmt: ast.stmt, found: list[Event]) -> None:
    """File what happens at a statement, less what happens in its blocks."""
    if isinstance(stmt, (ast.If, ast.While)):
        _expression(stmt.test, (), found)
    elif isinstance(stmt, (ast.For, ast.AsyncFor)):
        _expression(stmt.iter, (), found)
        _expression(stmt.target, (), found)
    elif isinstance(stmt, (ast.With, ast.AsyncWith)):
        for item in stmt.items:
            _expression(item.context_expr, (), found)
            if item.optional_vars is not None:
                _expression(item.optional_vars, (), found)
    elif isinstance(stmt, ast.Match):
        _expression(stmt.subject, (), found)
    elif isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for outside in (*stmt.decorator_list, *stmt.args.defaults, *(d for d in stmt.args.kw_defaults if d)):
            _expression(outside, (), found)
        found.append(Event("store", stmt, stmt.name))
    elif isinstance(stmt, ast.ClassDef):
        for outside in (*stmt.decorator_list, *stmt.bases, *(k.value for k in stmt.keywords)):
            _expression(outside, (), found)
        body: list[Event] = []
        for inner in own_statements(stmt.body):  # a class body runs at once; what it binds is its own
            _statement(inner, body)
        found += [e for e in body if e.kind != "store"]
        found.append(Event("store", stmt, stmt.name))
    elif isinstance(stmt, (ast.Import, ast.ImportFrom)):
        found += [Event("store", stmt, (alias.asname or alias.name).split(".")[0]) for alias in stmt.names]
    elif isinstance(stmt, ast.Assign):
        _expression(stmt.value, (), found)
        for target in stmt.targets:
            _expression(target, (), found)
    elif isinstance(stmt, ast.AnnAssign):
        if stmt.value is not None:
            _expression(stmt.value, (), found)
            _expression(stmt.target, (), found)
    elif isinstance(stmt, ast.AugAssign):
        _expression(stmt.value, (), found)
        text = place_of(stmt.target)
        if text is not None:
            found.append(Event("read", stmt.target, text))
        _expression(stmt.target, (), found)
    elif not isinstance(stmt, ast.Try) and type(stmt).__name__ != "TryStar":
        for child in syntax.children(stmt):
            if isinstance(child, ast.expr):
                _expression(child, (), found)


PROCESS_GROUP = "torch.distributed"  # a place of its own: what is set up, and what cannot do without
NEEDS_GROUP = ("DistributedDataParallel", "DDP", "DDP_apex", "ApexDDP", "DistributedSampler", "all_reduce", "barrier")


def _process_group(call: ast.Call, guards: Guards, found: list[Event]) -> None:
    name = syntax.last(call.func)
    if name == "init_process_group":
        found.append(Event("store", call, PROCESS_GROUP, guards))
    elif name in NEEDS_GROUP:
        found.append(Event("read", call, PROCESS_GROUP, guards))


_KINDS: dict[type[ast.expr_context], Kind] = {ast.Store: "store", ast.Load: "read", ast.Del: "delete"}


def _expression(expr: ast.expr, guards: Guards, found: list[Event]) -> None:
    """File what happens in an expression, in the order in which Python evaluates it."""
    kind = type(expr)
    if kind is ast.Constant:
        return
    if type(expr) is ast.Name:
        found.append(Event(_KINDS[type(expr.ctx)], expr, expr.id, guards))
    elif isinstance(expr, (ast.Attribute, ast.Subscript)):
        if isinstance(expr, ast.Subscript):
            _expression(expr.slice, guards, found)
        _expression(expr.value, guards, found)
        text = place_of(expr)
        stored = isinstance(expr.ctx, ast.Store)
        if text is None and stored and isinstance(expr, ast.Subscript):
            held = place_of(expr.value)
            if held is not None:
                found.append(Event("store", expr, f"{held}[...]", guards))
        if text is not None:
            found.append(Event(_KINDS[type(expr.ctx)], expr, text, guards))
    elif type(expr) is ast.Call:
        _expression(expr.func, guards, found)
        for value in syntax.given(expr):
            _expression(value, guards, found)
            if (handed := place_of(value)) is not None:
                found.append(Event("mention", value, handed, guards))
        found.append(Event("call", expr, "", guards))
        _process_group(expr, guards, found)
    elif isinstance(expr, ast.IfExp):
        _expression(expr.test, guards, found)
        _expression(expr.body, (*guards, (expr.test, True)), found)
        _expression(expr.orelse, (*guards, (expr.test, False)), found)
    elif isinstance(expr, ast.BoolOp):
        so_far = guards
        for value in expr.values:
            _expression(value, so_far, found)
            so_far = (*so_far, (value, isinstance(expr.op, ast.And)))
    elif isinstance(expr, ast.NamedExpr):
        _expression(expr.value, guards, found)
        _expression(expr.target, guards, found)
    elif isinstance(expr, ast.Lambda):
        for outside in (*expr.args.defaults, *(d for d in expr.args.kw_defaults if d)):
            _expression(outside, guards, found)
    elif isinstance(expr, COMPREHENSIONS):
        bound = {n.id for g in expr.generators for n in syntax.every(g.target, ast.Name)}
        inside: list[Event] = []
        for child in syntax.children(expr):
            parts = [child.iter, *child.ifs] if isinstance(child, ast.comprehension) else [child]
            for part in parts:
                if isinstance(part, ast.expr):
                    _expression(part, guards, inside)
        found += [e for e in inside if root(e.text) not in bound]
    else:
        for child in syntax.children(expr):
            if isinstance(child, ast.expr):
                _expression(child, guards, found)
            elif isinstance(child, ast.keyword):
                _expression(child.value, guards, found)
