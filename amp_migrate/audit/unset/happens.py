"""What the statements of one body do to one place: reads, assignments, and calls that do either."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.facts import NOTHING, Facts, is_there, learned, reads
from amp_migrate.audit.paths.flow import Node
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.unset.places import Body, Event, Guards, below, own_statements, place_of, root

if TYPE_CHECKING:
    from amp_migrate.audit.unset.unset import Unset

LEAVES = ("sys.exit", "exit", "quit", "os._exit")


@dataclass(frozen=True)
class Fault:
    """A place is read without a value. `facts` hold at the start of the body where it could be told, else at the read."""

    module: Module
    node: ast.AST
    facts: Facts
    missed: bool = False  # what runs before may give the place a value, and does not on this path
    classes: frozenset[Class] | None = None  # of which the object is whose attribute it is, to come to the read


@dataclass(frozen=True)
class State:
    has: bool = False
    fault: Fault | None = None
    pending: Fault | None = None  # a function that reads the place was handed on: it may run from here on
    beside: frozenset[str] = frozenset()
    held: bool = False  # whether the name that the place begins with was assigned
    classes: frozenset[Class] | None = None  # of which what that was assigned is
    lacking: Facts = NOTHING  # what holds where a call that may have given the place a value did not


class Happens:
    """What the nodes of one body do to one place."""

    def __init__(self, unset: Unset, body: Body, place: str, depth: int, *, giving: bool = False) -> None:
        """`giving`: what is asked is not who reads the place, but whether the body gives it a value."""
        self.unset = unset
        self.body = body
        self.place = place
        self.calls: dict[Event, list[tuple[Fault, Guards]]] = {}
        self.gives: set[Event] = set()
        self.misses: dict[Event, list[Guards]] = {}
        tests: list[ast.expr] = []
        self.matters = False
        written: list[ast.stmt] = []
        for stmt, event in body.about(place):
            self.matters |= event.kind == "read"
            if event.kind == "store":
                written.append(stmt)
            tests += [t for t, _ in event.guards]
            tests += _tests_around(body, stmt)
        for stmt, event in unset.passing.concerning(body, place):
            if event.kind == "store":
                if self.place.startswith(event.text.removesuffix("...]")):
                    self.gives.add(event)
            elif self._call(event, depth):
                tests += [t for t, _ in event.guards]
                tests += _tests_around(body, stmt)
        self.matters |= bool(self.calls) or giving
        if not self.matters and depth:
            return
        tests += _tests_that_leave(body)
        tests += [t for reached in self.calls.values() for _, guards in reached for t, _ in guards]
        tests += [t for missed in self.misses.values() for guards in missed for t, _ in guards]
        self.beside = self._assigned_with(written)
        self.holder = self._holder()
        self._atoms = _atoms(body, tests)

    @kept
    def about(self, key: str) -> bool:
        return any(reads(key, atom) for atom in self._atoms)

    def _call(self, event: Event, depth: int) -> bool:
        unset, body = self.unset, self.body
        if event.kind == "mention":
            functions = unset.passing.mentioned(body, event, self.place)
        else:
            assert isinstance(event.node, ast.Call)
            functions = unset.passing.down(body, event.node, self.place)
            if unset.given.sets(event.node, self.place):
                self.gives.add(event)
        for callee, inner in functions:
            its = unset.body(callee.module, callee)
            for found in unset.faults(its, inner, NOTHING, depth + 1):
                fault = self._of_object(event, callee, inner, found)
                if fault is None:
                    continue
                guards: Guards | None = ()
                if isinstance(event.node, ast.Call):
                    guards = unset.passing.guards(body, event.node, callee, fault.facts)
                if guards is not None:
                    self.calls.setdefault(event, []).append((fault, guards))
            if event.kind == "call" and unset.stores(its, inner):
                self.gives.add(event)
                assert isinstance(event.node, ast.Call)
                for facts in unset.lacking(its, inner, depth + 1):
                    missed = unset.passing.guards(body, event.node, callee, facts)
                    if missed:
                        self.misses.setdefault(event, []).append(missed)
        return event in self.calls or event in self.gives

    def _of_object(self, event: Event, callee: Function, inner: str, fault: Fault) -> Fault | None:
        """A fault of a method with the classes of the object that comes to it; None where the one that it is called on is
        of none of them."""
        receivers = self.unset.receivers
        classes = fault.classes or receivers.having(callee)
        if event.kind != "call" or classes is None or not callee.parameters or root(inner) != callee.parameters[0].arg:
            return replace(fault, classes=None)
        classes = receivers.of(self.body.module, event.node, callee, classes).classes
        return replace(fault, classes=classes) if classes else None

    def _assigned_with(self, written: list[ast.stmt]) -> frozenset[str]:
        """Places that are assigned only where this one is: a path without it is one without them, before as after."""
        body, place = self.body, self.place
        if not self.unset.is_local(body, place):
            return self.unset.given.only_with(self.unset, body, place)
        blocks = [_block(body.module, s) for s in written]
        if not blocks or any(b is None for b in blocks):
            return frozenset()
        places: dict[str, bool] = {}
        for stmt, event in body.everything:
            if event.kind == "store" and event.text != place and root(event.text) not in body.parameters:
                inside = any(b is not None and _within(body.module, stmt, b) for b in blocks)
                places[event.text] = places.get(event.text, True) and inside
        return frozenset(p for p, inside in places.items() if inside)

    def _holder(self) -> str | None:
        """The name that the place begins with, where statements of the body assign it: a path past them fails at the name
        itself, before as after."""
        name, scope = root(self.place), self.body.scope
        if name == self.place or not self.unset.is_local(self.body, self.place):
            return None
        bound = scope.bindings.get(name, ())
        own = [b for b in bound if isinstance(b, ast.Assign) and self.body.module.scope_of(b) is scope]
        return name if bound and len(own) == len(bound) else None

    def plainly_assigned(self) -> bool:
        """Whether the place has a value at each read by the order of the statements alone, whatever tests say."""
        self._open = False
        self._block(self.body.statements, False)
        return not self._open

    def loosely_given(self) -> bool:
        """Whether it is given in a loop or a `try`, or under a test that says nothing of what is known elsewhere: then it is
        not told on which ways it is not."""
        stores = [s for s, e in self.body.about(self.place) if e.kind == "store"]
        stores += [s for s, e in self.body.running if e in self.gives]
        inside = self.body.function.node if self.body.function is not None else self.body.module.tree
        for stmt in stores:
            around = itertools.takewhile(lambda node: node is not inside, self.body.module.ancestors(stmt))
            if any(isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)) for node in around):
                return True
        tests = [t for s in stores for t in _tests_around(self.body, s)]
        tests += _tests_that_leave(self.body)
        return not all(learned(t, True, NOTHING) or learned(t, False, NOTHING) for t in tests)

    def _block(self, body: list[ast.stmt], has: bool) -> bool | None:
        """Whether the place surely has a value after a block; None where the block is always left."""
        for stmt in body:
            has = self._simple(stmt, has)
            ends: list[bool | None] = [has]
            if isinstance(stmt, ast.If):
                ends = [self._block(stmt.body, has), self._block(stmt.orelse, has)]
            elif isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
                ends = [self._block(stmt.body, has), *([has] if _skips(stmt.body) else [])]
                if stmt.orelse:
                    ends = [self._block(stmt.orelse, all(e is not False for e in ends))]
            elif isinstance(stmt, (ast.With, ast.AsyncWith)):
                ends = [self._block(stmt.body, has)]
            elif isinstance(stmt, ast.Try):
                ends = [self._block([*stmt.body, *stmt.orelse], has)]
                ends += [self._block(h.body, has) for h in stmt.handlers]
                if stmt.finalbody:
                    last = self._block(stmt.finalbody, has)
                    ends = [last or e if e is not None and last is not None else None for e in ends]
            elif isinstance(stmt, ast.Match):
                ends = [*(self._block(case.body, has) for case in stmt.cases), has]
            elif _leaves_body(stmt):
                return None
            if all(e is None for e in ends):
                return None
            has = all(e for e in ends if e is not None)
        return has

    def _simple(self, stmt: ast.stmt, has: bool) -> bool:
        node = Node(stmt)
        for event in self.body.events(node):
            if event in self.calls or (event.text == self.place and event.kind == "read"):
                self._open |= not has
            given = event in self.gives and not self.misses.get(event)
            if given or (event.kind == "store" and event.text == self.place):
                has = True
            elif event.kind == "store" and below(self.place, event.text):
                has = self._comes_with(node, event)
            elif event.kind == "delete" and event.text == self.place:
                has = False
        return has

    def step(self, node: Node, state: State, facts: Facts) -> Iterable[State]:
        states = [state]
        for event in self.body.events(node):
            if not states:
                return []
            if event.kind == "read" and event.text in self.beside:
                states = [s for s in states if event.text in s.beside]
            elif event.kind == "store" and event.text in self.beside:
                states = [replace(s, beside=s.beside | {event.text}) for s in states]
            elif event.text == self.holder and event.kind == "store":
                has, classes = self._comes_with(node, event), self._made(node, event)
                states = [replace(s, has=has, held=True, classes=classes) for s in states]
            elif event.text == self.place or event in self.calls or event in self.gives:
                held = _with(facts, event.guards)
                if held is not None:
                    can = [s for s in states if s.held or self.holder is None]
                    states = [after for s in can for after in self._at(event, s, held)]
            elif event.kind == "store" and below(self.place, event.text):
                states = [replace(s, has=self._comes_with(node, event)) for s in states]
        return states

    def _at(self, event: Event, state: State, facts: Facts) -> Iterable[State]:
        if state.fault is not None:
            return [state]
        if event.kind == "store":
            return [replace(state, has=True, pending=None)]
        if event.kind == "delete":
            return [replace(state, has=False)]
        if state.has:
            return [state]
        if is_there(self.place, facts):
            return [replace(state, has=True)]
        if any((key, not holds) in facts for key, holds in state.lacking):
            return []  # which no run comes to
        facts |= state.lacking
        if event.kind == "read":
            return [replace(state, fault=Fault(self.body.module, event.node, facts, bool(state.lacking)))]
        after = [replace(state, has=True)] if event in self.gives else [state]
        for guards in self.misses.get(event, ()):
            lacking = _with(facts, guards)
            if lacking is not None:
                after.append(replace(state, lacking=lacking))
        for fault, guards in self.calls.get(event, ()):
            if fault.classes and state.classes and fault.classes.isdisjoint(state.classes):
                continue
            held = _with(facts, guards)
            if held is not None:
                reached = replace(fault, facts=held, missed=fault.missed or bool(state.lacking))
                handed = event.kind == "mention"
                after.append(replace(state, pending=reached) if handed else replace(state, fault=reached))
        return after

    def _comes_with(self, node: Node, event: Event) -> bool:
        """Whether what a longer place begins with is given a value that has it; True where that is not known."""
        if not isinstance(node.stmt, ast.Assign) or node.stmt.targets != [event.node]:
            return True
        scope = self.body.module.scope_of(node.stmt)
        rest = self.place[len(event.text) :]
        return self.unset.given.has(self.unset, scope, node.stmt.value, rest) is not False

    def _made(self, node: Node, event: Event) -> frozenset[Class] | None:
        """The classes of what the name is given that the place begins with, as far as that is seen to be made."""
        if not isinstance(node.stmt, ast.Assign) or node.stmt.targets != [event.node]:
            return None
        return self.unset.receivers.made(self.body.module.scope_of(node.stmt), node.stmt.value)

    def on_error(self, node: Node, state: State) -> Iterable[State]:
        """An exception is a path only where the handler names what it expects."""
        stmt = node.stmt
        if stmt is None:
            return []
        return [] if _broadly_caught(self.body.module, stmt) else [state]


@kept
def _broadly_caught(module: Module, stmt: ast.stmt) -> bool:
    around = next((a for a in module.ancestors(stmt) if isinstance(a, ast.Try)), None)
    return around is not None and any(map(_broad, around.handlers))


def _broad(handler: ast.ExceptHandler) -> bool:
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = ("Exception", "BaseException", "KeyboardInterrupt", "RuntimeError", "NameError", "AttributeError")
    return any(t is None or syntax.text(t) in broad for t in types)


def _with(facts: Facts, guards: Guards) -> Facts | None:
    for test, came_out in guards:
        more = learned(test, came_out, facts)
        if more is None:
            return None
        facts = more
    return facts


def _tests_around(body: Body, stmt: ast.stmt) -> Iterator[ast.expr]:
    inside = body.function.node if body.function is not None else body.module.tree
    for node in (stmt, *body.module.ancestors(stmt)):
        if node is inside:
            return
        if isinstance(node, (ast.If, ast.While)):
            yield node.test


def _tests_that_leave(body: Body) -> Iterator[ast.expr]:
    for stmt in own_statements(body.statements):
        if isinstance(stmt, ast.If):
            inner = [*own_statements(stmt.body), *own_statements(stmt.orelse)]
            if any(_leaves_body(s) for s in inner):
                yield stmt.test


def _leaves_body(stmt: ast.stmt) -> bool:
    if isinstance(stmt, ast.Expr):
        return isinstance(stmt.value, ast.Call) and syntax.text(stmt.value.func) in LEAVES
    return isinstance(stmt, (ast.Return, ast.Raise, ast.Break, ast.Continue))


def _atoms(body: Body, tests: Iterable[ast.expr]) -> frozenset[str]:
    """The places that tests ask about, and those that they are made of."""
    atoms = {text for test in tests for text in _leaves(test)}
    for _ in range(2):
        for stmt in own_statements(body.statements):
            if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and place_of(stmt.targets[0]) in atoms:
                if isinstance(stmt.value, (ast.Name, ast.Attribute, ast.Compare, ast.BoolOp, ast.UnaryOp)):
                    atoms.update(_leaves(stmt.value))
    return frozenset(atoms)


def _leaves(test: ast.expr) -> Iterator[str]:
    text = place_of(test)
    if text is not None:
        yield text
        return
    for child in syntax.children(test):
        if isinstance(child, ast.expr):
            yield from _leaves(child)


def _block(module: Module, stmt: ast.stmt) -> ast.AST | None:
    """The branch, loop or `try` that a statement stands in; None directly in a body."""
    for node in module.ancestors(stmt):
        if isinstance(node, (ast.If, ast.For, ast.While, ast.Try, ast.ExceptHandler)):
            return node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return None
    return None


def _within(module: Module, stmt: ast.stmt, block: ast.AST) -> bool:
    return any(node is block for node in module.ancestors(stmt))


def _skips(body: list[ast.stmt]) -> bool:
    return any(isinstance(s, (ast.Break, ast.Continue)) for s in own_statements(body))
