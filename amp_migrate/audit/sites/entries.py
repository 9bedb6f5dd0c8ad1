"""Tuples of a function, place by place: what may stand in each that it returns, and which of one that a call gives it reads.

A tuple may be written, put together (`(scores,) + outputs[2:]`), cut (`outputs[1:]`), taken apart, and carried by variables
through branches and loops. What is done with one otherwise reads all of it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from amp_migrate.audit.program import syntax

Item = ast.expr | int  # what stands in a place: what is written there, or the place of the tuple that is asked for
MOST = 16  # tuples that a variable may hold


@dataclass(frozen=True)
class Shape:
    """A tuple; `more`: whether further places may follow, of which nothing is known."""

    items: tuple[Item, ...]
    more: bool = False

    def cut(self, first: int, last: int | None) -> Shape:
        beyond = last is None or last > len(self.items)
        return Shape(self.items[first:last], self.more and beyond)

    def joined(self, other: Shape | None) -> Shape:
        if self.more or other is None:
            return replace(self, more=True)
        return Shape(self.items + other.items, other.more)


Shapes = frozenset[Shape]
State = Mapping[str, Shapes]
NONE: Shapes = frozenset()


class Entries:
    """A function, or the statements of a file, from first to last. `source`: the call that gives the tuple that is asked for."""

    def __init__(self, body: Sequence[ast.stmt], source: ast.Call | None = None, given: Shape | None = None) -> None:
        self.returned: set[Shape] = set()
        self.read: set[Item] = set()
        self.told = False  # something is read of it by its place
        self.whole = False  # it is used as it is
        self._source = source
        self._given = given
        self._shared = {
            n.id for s in body for d in syntax.walk(s) if isinstance(d, _INNER) for n in syntax.every(d, ast.Name)
        }
        self._shared.update(name for s in body for n in syntax.every(s, ast.Global) for name in n.names)
        self._loaded = {n.id for s in body for n in syntax.every(s, ast.Name) if isinstance(n.ctx, ast.Load)}
        self._run(body, {})

    def of_call(self) -> set[int] | None:
        """The places that are read, or handed on by a return; None where that is not told by places."""
        self._all(self.returned)
        return {i for i in self.read if isinstance(i, int)} if self.told and not self.whole else None

    def _run(self, body: Sequence[ast.stmt], state: State) -> State:
        for stmt in body:
            state = self._step(stmt, state)
        return state

    def _step(self, stmt: ast.stmt, state: State) -> State:
        if isinstance(stmt, ast.Assign):
            shapes = self._value(stmt.value, state)
            for target in stmt.targets:
                state = self._bind(target, shapes, state)
            return state
        if isinstance(stmt, ast.AnnAssign) and stmt.value is not None:
            return self._bind(stmt.target, self._value(stmt.value, state), state)
        if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name) and stmt.target.id in state:
            mine = ast.Name(stmt.target.id, ast.Load())
            return self._bind(stmt.target, self._value(ast.BinOp(mine, stmt.op, stmt.value), state), state)
        if isinstance(stmt, ast.Return):
            self.returned |= self._value(stmt.value, state) if stmt.value is not None else NONE
            return state
        if isinstance(stmt, ast.If):
            self._reads(stmt.test, state)
            return _either(self._run(stmt.body, state), self._run(stmt.orelse, state))
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            for item in stmt.items:
                self._reads(item, state)
            return self._run(stmt.body, _without(state, *stmt.items))
        if isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
            self._reads(stmt.test if isinstance(stmt, ast.While) else stmt.iter, state)
            state = state if isinstance(stmt, ast.While) else _without(state, stmt.target)
            once = _either(state, self._run(stmt.body, state))
            twice = _either(once, self._run(stmt.body, once))
            for name in [name for name in twice if twice[name] != once.get(name)]:
                self._all(twice[name])  # it grows in each turn
            same = {name: shapes for name, shapes in twice.items() if shapes == once.get(name)}
            return self._run(stmt.orelse, same)
        if isinstance(stmt, ast.Try):
            done = self._run(stmt.body, state)
            ends = [self._run(h.body, _either(state, done)) for h in stmt.handlers]
            after = self._run(stmt.orelse, done)
            for end in ends:
                after = _either(after, end)
            return self._run(stmt.finalbody, after)
        self._reads(stmt, state)
        return _without(state, stmt)

    def _bind(self, target: ast.expr, shapes: Shapes, state: State) -> State:
        if isinstance(target, ast.Name):
            if target.id in self._shared:
                self._all(shapes)
            rest = _without(state, target)
            return {**rest, target.id: shapes} if shapes and target.id not in self._shared else rest
        if isinstance(target, (ast.Tuple, ast.List)):
            for shape in shapes:
                self._taken_apart(shape, target.elts)
            return _without(state, target)
        self._all(shapes)
        return state

    def _taken_apart(self, shape: Shape, targets: Sequence[ast.expr]) -> None:
        """`sequence, _ = self.encoder(x)`: what nothing reads by its new name is not read. A tuple of another length is another."""
        starred = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        if starred is not None:
            if starred != len(targets) - 1 or starred > len(shape.items):
                self._all({shape})
                return
            last = targets[-1]
            kept = last.value if isinstance(last, ast.Starred) else last
            pairs = [*zip(targets[:-1], shape.items, strict=False), *((kept, i) for i in shape.items[starred:])]
        elif len(targets) == len(shape.items) or (shape.more and len(targets) > len(shape.items)):
            pairs = list(zip(targets, shape.items, strict=False))
        else:
            return
        self.told = True
        self.read.update(i for t, i in pairs if not isinstance(t, ast.Name) or t.id in self._loaded)

    def _value(self, expr: ast.expr, state: State) -> Shapes:
        """The tuples that an expression may give; what it reads else is taken down."""
        found = self._shapes(expr, state)
        if not found:
            self._reads(expr, state)
        if len(found) > MOST:
            self._all(found)
        return found if len(found) <= MOST else NONE

    def _shapes(self, expr: ast.expr, state: State) -> Shapes:
        if expr is self._source:
            for part in ast.iter_child_nodes(expr):
                self._reads(part, state)
            return frozenset({self._given}) if self._given is not None else NONE
        if isinstance(expr, ast.Name):
            return state.get(expr.id, NONE)
        if isinstance(expr, (ast.Tuple, ast.List)) and not any(isinstance(e, ast.Starred) for e in expr.elts):
            for element in expr.elts:
                self._reads(element, state)
            return frozenset({Shape(tuple(expr.elts))})
        if isinstance(expr, ast.IfExp):
            sides = [(side, self._shapes(side, state)) for side in (expr.body, expr.orelse)]
            if any(shapes for _, shapes in sides):
                for other in (expr.test, *(side for side, shapes in sides if not shapes)):
                    self._reads(other, state)
            return NONE.union(*(shapes for _, shapes in sides))
        if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add):
            left = self._shapes(expr.left, state)
            right = self._value(expr.right, state) if left else NONE
            if any(shape.more for shape in left):
                self._all(right)  # at places that are not known
            return frozenset(a.joined(b) for a in left for b in (right or {None}))
        if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Slice) and expr.slice.step is None:
            first, last = _place(expr.slice.lower, 0), _place(expr.slice.upper, None)
            if first is not None and (last is not None or expr.slice.upper is None):
                shapes = self._shapes(expr.value, state)
                self.told = self.told or self._mine(shapes)
                return frozenset(shape.cut(first, last) for shape in shapes)
        if isinstance(expr, ast.Call) and syntax.text(expr.func) in ("tuple", "list") and len(expr.args) == 1:
            return self._shapes(expr.args[0], state)
        return NONE

    def _reads(self, node: ast.AST, state: State) -> None:
        """Take down what is read where a statement or an expression uses tuples."""
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            place = _place(node.slice, None)
            shapes = self._shapes(node.value, state)
            if place is not None and isinstance(node.ctx, ast.Load) and all(_has(s, place) for s in shapes):
                self.read.update(s.items[place] for s in shapes if place < len(s.items))
                self.told = self.told or self._mine(shapes)
                if shapes:
                    return
        shapes = self._shapes(node, state) if isinstance(node, ast.expr) else NONE
        if shapes:
            self._all(shapes)
        elif node is not self._source:
            for child in ast.iter_child_nodes(node):
                self._reads(child, state)

    def _all(self, shapes: Set[Shape]) -> None:
        for shape in shapes:
            self.read.update(shape.items)
            self.whole = self.whole or shape == self._given

    def _mine(self, shapes: Shapes) -> bool:
        """Whether one of the tuples is that which is asked for."""
        return any(shape == self._given for shape in shapes)


_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def _either(one: State, other: State) -> State:
    return {name: one.get(name, NONE) | other.get(name, NONE) for name in {**one, **other}}


def _without(state: State, *nodes: ast.AST) -> State:
    """What is known once nodes gave other values to names."""
    names = {n.id for node in nodes for n in syntax.every(node, ast.Name) if not isinstance(n.ctx, ast.Load)}
    return {name: held for name, held in state.items() if name not in names}


def _place(node: ast.expr | None, default: int | None) -> int | None:
    """A place that is written as a number, from the start."""
    if node is None:
        return default
    value = node.value if isinstance(node, ast.Constant) else None
    return value if type(value) is int and value >= 0 else None


def _has(shape: Shape, place: int) -> bool:
    return shape.more or place < len(shape.items)
