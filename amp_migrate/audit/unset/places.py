"""Places that hold values, as a body writes them (`scaler`, `self.scaler`, `state["scaler"]`), and what happens to them in order."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from amp_migrate.audit.paths.flow import Node
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import COMPREHENSIONS, Function, Module, Scope

Guards = tuple[tuple[ast.expr, bool], ...]  # tests inside an expression that came out so where a part of it runs


@dataclass(frozen=True, eq=False)
class Event:
    """One thing that happens to a place in a statement; `mention`: a function is handed on, not called."""

    kind: Literal["read", "store", "delete", "call", "mention"]
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

    @property
    def key(self) -> tuple[str, str]:
        return self.module.path, self.function.qualname if self.function is not None else ""

    @cached_property
    def parameters(self) -> frozenset[str]:
        if self.function is None:
            return frozenset()
        a = self.function.node.args
        extra = [x.arg for x in (a.vararg, a.kwarg) if x is not None]
        return frozenset([*(p.arg for p in self.function.parameters), *extra])

    @cached_property
    def _known(self) -> dict[ast.stmt, list[Event]]:
        return {}

    def events(self, node: Node) -> list[Event]:
        """What happens at a node, in the order in which Python evaluates."""
        if node.stmt is None or node.kind == "leave":
            return []
        return self.of(node.stmt)

    def of(self, stmt: ast.stmt) -> list[Event]:
        """What happens at a statement, less what happens in its blocks."""
        if stmt not in self._known:
            self._known[stmt] = list(_statement(stmt))
        return self._known[stmt]

    @cached_property
    def _everything(self) -> list[tuple[ast.stmt, Event]]:
        return [(stmt, event) for stmt in own_statements(self.statements) for event in self.of(stmt)]

    def everything(self) -> Sequence[tuple[ast.stmt, Event]]:
        """All events of the body."""
        return self._everything


_COMPOUND = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match),
    *([ast.TryStar] if hasattr(ast, "TryStar") else []),
)


def own_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement of a body: not those of functions and classes defined in it."""
    waiting = body[::-1]  # no recursion: a chain of `elif` is as deep as it is long
    while waiting:
        stmt = waiting.pop()
        yield stmt
        if not isinstance(stmt, _COMPOUND):
            continue
        inner: list[ast.stmt] = []
        for name in ("body", "orelse", "finalbody"):
            inner += getattr(stmt, name, None) or ()
        for part in (*getattr(stmt, "handlers", []), *getattr(stmt, "cases", [])):
            inner += part.body
        waiting += inner[::-1]


def place_of(expr: ast.AST) -> str | None:
    """The text of an expression that names a place: a name, or attributes and constant items of one."""
    at: ast.AST = expr
    while isinstance(at, ast.Attribute) or (isinstance(at, ast.Subscript) and _is_key(at.slice)):
        at = at.value
    return syntax.text(expr) if isinstance(at, ast.Name) else None


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


def _statement(stmt: ast.stmt) -> Iterator[Event]:
    if isinstance(stmt, (ast.If, ast.While)):
        yield from _expression(stmt.test, ())
    elif isinstance(stmt, (ast.For, ast.AsyncFor)):
        yield from _expression(stmt.iter, ())
        yield from _expression(stmt.target, ())
    elif isinstance(stmt, (ast.With, ast.AsyncWith)):
        for item in stmt.items:
            yield from _expression(item.context_expr, ())
            if item.optional_vars is not None:
                yield from _expression(item.optional_vars, ())
    elif isinstance(stmt, ast.Match):
        yield from _expression(stmt.subject, ())
    elif isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for outside in (*stmt.decorator_list, *stmt.args.defaults, *(d for d in stmt.args.kw_defaults if d)):
            yield from _expression(outside, ())
        yield Event("store", stmt, stmt.name)
    elif isinstance(stmt, ast.ClassDef):
        for outside in (*stmt.decorator_list, *stmt.bases, *(k.value for k in stmt.keywords)):
            yield from _expression(outside, ())
        for inner in own_statements(stmt.body):  # a class body runs at once; what it binds is its own
            yield from (e for e in _statement(inner) if e.kind != "store")
        yield Event("store", stmt, stmt.name)
    elif isinstance(stmt, (ast.Import, ast.ImportFrom)):
        for alias in stmt.names:
            yield Event("store", stmt, (alias.asname or alias.name).split(".")[0])
    elif isinstance(stmt, ast.Assign):
        yield from _expression(stmt.value, ())
        for target in stmt.targets:
            yield from _expression(target, ())
    elif isinstance(stmt, ast.AnnAssign):
        if stmt.value is not None:
            yield from _expression(stmt.value, ())
            yield from _expression(stmt.target, ())
    elif isinstance(stmt, ast.AugAssign):
        yield from _expression(stmt.value, ())
        text = place_of(stmt.target)
        if text is not None:
            yield Event("read", stmt.target, text)
        yield from _expression(stmt.target, ())
    elif not isinstance(stmt, ast.Try) and type(stmt).__name__ != "TryStar":
        for child in syntax.children(stmt):
            if isinstance(child, ast.expr):
                yield from _expression(child, ())


PROCESS_GROUP = "torch.distributed"  # a place of its own: what is set up, and what cannot do without
NEEDS_GROUP = ("DistributedDataParallel", "DDP", "DDP_apex", "ApexDDP", "DistributedSampler", "all_reduce", "barrier")


def _process_group(call: ast.Call, guards: Guards) -> Iterator[Event]:
    name = syntax.text(call.func).rpartition(".")[2]
    if name == "init_process_group":
        yield Event("store", call, PROCESS_GROUP, guards)
    elif name in NEEDS_GROUP:
        yield Event("read", call, PROCESS_GROUP, guards)


def _expression(expr: ast.expr, guards: Guards) -> Iterator[Event]:
    text = place_of(expr) if isinstance(expr, (ast.Name, ast.Attribute, ast.Subscript)) else None
    if isinstance(expr, (ast.Name, ast.Attribute, ast.Subscript)):
        if isinstance(expr, ast.Subscript):
            yield from _expression(expr.slice, guards)
        if not isinstance(expr, ast.Name):
            yield from _expression(expr.value, guards)
        if text is None and isinstance(expr, ast.Subscript) and isinstance(expr.ctx, ast.Store):
            held = place_of(expr.value)
            if held is not None:
                yield Event("store", expr, f"{held}[...]", guards)
        if text is not None:
            stored = "store" if isinstance(expr.ctx, ast.Store) else "delete"
            yield Event("read" if isinstance(expr.ctx, ast.Load) else stored, expr, text, guards)  # type: ignore[arg-type]
    elif isinstance(expr, ast.IfExp):
        yield from _expression(expr.test, guards)
        yield from _expression(expr.body, (*guards, (expr.test, True)))
        yield from _expression(expr.orelse, (*guards, (expr.test, False)))
    elif isinstance(expr, ast.BoolOp):
        so_far = guards
        for value in expr.values:
            yield from _expression(value, so_far)
            so_far = (*so_far, (value, isinstance(expr.op, ast.And)))
    elif isinstance(expr, ast.NamedExpr):
        yield from _expression(expr.value, guards)
        yield from _expression(expr.target, guards)
    elif isinstance(expr, ast.Lambda):
        for outside in (*expr.args.defaults, *(d for d in expr.args.kw_defaults if d)):
            yield from _expression(outside, guards)
    elif isinstance(expr, COMPREHENSIONS):
        bound = {n.id for g in expr.generators for n in syntax.walk(g.target) if isinstance(n, ast.Name)}
        for child in syntax.children(expr):
            parts = [child.iter, *child.ifs] if isinstance(child, ast.comprehension) else [child]
            for part in parts:
                if isinstance(part, ast.expr):
                    yield from (e for e in _expression(part, guards) if root(e.text or "") not in bound)
    elif isinstance(expr, ast.Call):
        yield from _expression(expr.func, guards)
        for value in (*expr.args, *(k.value for k in expr.keywords)):
            yield from _expression(value, guards)
            if (handed := place_of(value)) is not None:
                yield Event("mention", value, handed, guards)
        yield Event("call", expr, "", guards)
        yield from _process_group(expr, guards)
    else:
        for child in syntax.children(expr):
            if isinstance(child, ast.expr):
                yield from _expression(child, guards)
            elif isinstance(child, ast.keyword):
                yield from _expression(child.value, guards)
