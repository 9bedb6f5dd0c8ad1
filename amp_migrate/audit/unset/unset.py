"""Reads of a place that has no value yet: on which paths of a body they happen, and which entries come there.

`Unset.faults` follows one place through one body and what it calls; what depends on the state at its start is asked of
the callers (`Unset.claims`). A path counts only if it runs to its end: one that raises, or that reads beside the place
something that was assigned together with it only, failed before the migration too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.facts import NOTHING, Facts, learned
from amp_migrate.audit.paths.flow import Graph, Node, Settings, TooManyPaths, Walk, walk
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.unset.given import Given
from amp_migrate.audit.unset.happens import LEAVES, Fault, Happens, State
from amp_migrate.audit.unset.passing import Passing
from amp_migrate.audit.unset.places import Body, Event, own_statements, root
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.receivers import Receivers

K = TypeVar("K")
T = TypeVar("T")
DEPTH = 5  # calls followed into each other
FEW = 12  # ways into one read that are told apart
AS_SCRIPT: Facts = frozenset({("__name__ == '__main__'", True)})
AS_IMPORT: Facts = frozenset({("__name__ == '__main__'", False)})


@kept  # in whichever state of the program
def body_of(module: Module, function: Function | None) -> Body:
    return Body(module, function)


@dataclass(frozen=True)
class Claim:
    """A run in which a place is read without a value: it starts in `body`, the place as that writes it."""

    body: Body
    place: str
    fault: Fault
    how: str  # "run", "import" (called from another file, where the script's own part never ran), "method", "init"


class Unset:
    """Answers for one state of a program."""

    def __init__(self, values: Values, *, settings_kept: bool = True) -> None:
        self.program = values.program
        self.values = values
        self.settings = Settings(settings_kept)
        self.passing = Passing(values)
        self.given = Given(values)
        self.receivers = Receivers(values)
        self._faults: dict[tuple[Body, str, Facts], tuple[list[Fault], bool]] = {}
        self._sure: dict[tuple[Body, str, Facts], tuple[bool, bool]] = {}
        self._stores: dict[tuple[Body, str], bool] = {}
        self._lacking: dict[tuple[Body, str], Sequence[Facts]] = {}
        self._busy: set[tuple[Body, str]] = set()

    def body(self, module: Module, function: Function | None) -> Body:
        return body_of(module, function)

    # -- one body --------------------------------------------------------------------------------------------------

    def faults(self, body: Body, place: str, start: Facts = NOTHING, depth: int = 0) -> list[Fault]:
        """Reads of a place in a body, and in what it calls, that nothing in the body has assigned before."""
        key = (body, place, start)
        if key not in self._faults:
            if depth > DEPTH or (body, place) in self._busy:
                return []
            self._busy.add((body, place))
            self._noted(self._faults, key, lambda: self._follow(body, place, start, depth))
            self._busy.discard((body, place))
        return self._noted(self._faults, key, list)

    def _noted(self, known: dict[K, tuple[T, bool]], key: K, find: Callable[[], T]) -> T:
        """An answer that is kept, and with it whether settings had a say in it."""
        if key not in known:
            outside, self.settings.asked = self.settings.asked, False
            found = find()
            known[key] = found, self.settings.asked
            self.settings.asked = outside
        found, asked = known[key]
        self.settings.asked |= asked
        return found

    @cached_property
    def unsettled(self) -> Unset:
        """The same where settings may have any value."""
        return Unset(self.values, settings_kept=False)

    def _follow(self, body: Body, place: str, start: Facts, depth: int) -> list[Fault]:
        happens = Happens(self, body, place, depth)
        if not happens.matters or happens.plainly_assigned():
            return []
        graph = body.graph
        done: list[Fault] = []

        def seeing(node: Node, state: State, facts: Facts) -> Iterable[State]:
            after = list(happens.step(node, state, facts))
            if isinstance(node.stmt, ast.Expr) and isinstance(node.stmt.value, ast.Call):
                if syntax.text(node.stmt.value.func) in LEAVES:
                    done.extend(s.fault for s in after if s.fault is not None)
            return after

        try:
            met = _walked(graph, start, happens, seeing)
        except TooManyPaths:
            return []
        if met.blunt:
            return []
        ends = met.at(graph.exit)
        if not ends and _endless(body.statements):
            ends = [s for node in graph.nodes for s in met.at(node)]
        for end in ends:
            if end.fault is not None:
                done.append(end.fault)
            elif end.pending is not None and not end.has:
                done.append(end.pending)
        local = self.is_local(body, place)
        told = {f if local else replace(f, facts=_entering(body, f.facts)) for f in done}
        return sorted(told, key=lambda f: (getattr(f.node, "lineno", 0), len(f.facts), sorted(f.facts)))[:FEW]

    def is_local(self, body: Body, place: str) -> bool:
        """Whether a place begins in a body: its name is bound there, and is no parameter."""
        name = root(place)
        return body.scope.binder(name) is body.scope and name not in body.parameters

    def deciding(self, claim: Claim) -> Facts:
        """What was known on the path of a claim, less what no assignment hangs on: where a variable of the body is not
        assigned on the way to the read at all, nothing else that was asked on it decides."""
        body, fault = claim.body, claim.fault
        if not self.is_local(body, claim.place):
            return fault.facts
        stores = {s for s, e in body.everything if self._gives(body, claim.place, e, 0)}
        around = (b for b in own_statements(body.statements) if isinstance(b, (ast.If, ast.While)))
        tests = [b.test for b in around if any(s in stores for s in own_statements([b]))]
        parts = [n for test in tests for n in syntax.walk(test) if isinstance(n, ast.expr)]
        asked = {key for p in parts for out in (True, False) for key, _ in learned(p, out, NOTHING) or ()}
        return frozenset(f for f in fault.facts if f[0] in asked)

    def stores(self, body: Body, place: str, depth: int = 0) -> bool:
        """Whether a body, or what it calls, may give a place a value."""
        key = (body, place)
        if key not in self._stores:
            self._stores[key] = False
            events = (*body.about(place), *self.passing.concerning(body, place))
            self._stores[key] = any(self._gives(body, place, e, depth) for _, e in events)
        return self._stores[key]

    def _gives(self, body: Body, place: str, event: Event, depth: int) -> bool:
        if event.kind == "store":
            return event.text == place
        if event.kind != "call" or depth > DEPTH or not isinstance(event.node, ast.Call):
            return False
        if self.given.sets(event.node, place):
            return True
        return any(
            self.stores(self.body(callee.module, callee), inner, depth + 1)
            for callee, inner in self.passing.down(body, event.node, place)
        )

    def lacking(self, body: Body, place: str, depth: int) -> Sequence[Facts]:
        """What holds on the ways through a body that may give a place a value on which it has none in the end, as far as the
        tests that decide can be told apart; nothing where some of them cannot."""
        key = (body, place)
        if key not in self._lacking:
            self._lacking[key] = ()
            self._lacking[key] = self._without(body, place, depth)
        return self._lacking[key]

    def _without(self, body: Body, place: str, depth: int) -> Sequence[Facts]:
        if depth > DEPTH or body.function is None:
            return ()
        happens = Happens(self, body, place, depth, giving=True)
        if happens.loosely_given():
            return ()
        try:
            met = _walked(body.graph, NOTHING, happens, happens.step)
        except TooManyPaths:
            return ()
        if met.blunt:
            return ()
        ways = [_entering(body, facts | s.lacking) for facts, s in met.ends if not s.has and s.fault is None]
        return [] if any(not facts for facts in ways) else list(dict.fromkeys(ways))[:FEW]

    # -- who comes there -------------------------------------------------------------------------------------------

    def claims(self, body: Body, place: str) -> list[Claim]:
        """The runs in which a read of a place, in a body or what it calls, finds no value."""
        found: list[Claim] = []
        offered: list[
            tuple[Body, str, list[Fault]]
        ] = []  # methods of an object that others may call as they are called here
        lost = False  # whether a way up ends in sight, where nothing says what came before
        todo, seen = [(body, place)], {(body, place)}
        while todo and len(seen) < 40:
            at, name = todo.pop(0)
            local = self.is_local(at, name)
            faults = self.faults(at, name, AS_SCRIPT if at.function is None else NOTHING)
            if not faults:
                continue
            if local:
                found += [Claim(at, name, f, "run") for f in faults]
                continue
            if at.function is None:
                continue
            offered.append((at, name, faults))
            lost |= self._lost(at, at.function, name)
            for further in self._above(at, at.function, name, faults, found):
                if further not in seen:
                    seen.add(further)
                    todo.append(further)
        for at, name, faults in offered if lost and not found else ():
            found += self._once_made(at, name, faults)
        return found

    def _lost(self, at: Body, function: Function, place: str) -> bool:
        """Whether nothing in sight calls a function that uses an object of its file, to which the file itself did nothing
        that gives it the place: a callback of a notebook."""
        outside = at.scope.binder(root(place))
        if outside is None or outside.parent is not None or "." not in place or self.program.callers(function):
            return False
        return not self.stores(self.body(outside.module, None), place)

    def _once_made(self, at: Body, place: str, faults: list[Fault]) -> list[Claim]:
        """The claims about a method that anybody may call on an object which was only made."""
        function = at.function
        if function is None or function.owner is None or function.name.startswith("_") or "." not in place:
            return []  # a function inside of a method has no owner
        cls = self.program.is_self(function.scope, ast.Name(root(place), ast.Load()))
        if cls is None:
            return []
        return [Claim(at, place, f, "method") for f in self.given.once_made(self, cls, function, place, faults)]

    def _above(
        self, at: Body, function: Function, place: str, faults: list[Fault], found: list[Claim]
    ) -> Iterator[tuple[Body, str]]:
        callers = self.program.callers(function)
        for module, call in callers:
            caller = self.body(module, module.function_around(call))
            if self._made_there(caller, call, function, place):
                found += [Claim(caller, place, f, "run") for f in faults]
            if function not in self.passing.callees(caller, call):
                continue
            name = self.passing.up(caller, call, function, place)
            if name is not None:
                yield caller, name
            elif module is not at.module and self._unset_on_import(at, place):
                found += [Claim(caller, place, f, "import") for f in faults]
        if not callers:
            found += self._once_made(at, place, faults)
        if function.name == "__init__" and self.given.lacks_at_first(self, function, place):
            found += [Claim(at, place, f, "init") for f in faults]
        outside = at.scope.binder(root(place))
        if outside is not None and outside.function is not None and outside is not at.scope:
            yield self.body(outside.module, outside.function), place

    def _made_there(self, caller: Body, call: ast.Call, function: Function, place: str) -> bool:
        """Whether a method runs on an object that is made for it and has no such attribute: `Learner().evaluate(model)`."""
        own = function.parameters[0].arg if function.bound and function.parameters else ""
        made = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not isinstance(made, ast.Call) or not own or root(place) != own:
            return False
        return self.given.has(self, caller.scope, made, place[len(own) :]) is False

    def _unset_on_import(self, body: Body, place: str) -> bool:
        """Whether importing a module leaves a global of it without a value, which no other file gives it."""
        scope = body.scope.binder(root(place))
        if scope is None or scope.parent is not None or self.values.fields(root(place)):
            return False
        return not self.sure(self.body(scope.module, None), root(place), AS_IMPORT)

    def sure(self, body: Body, place: str, start: Facts) -> bool:
        """Whether a place has a value on every path to the end of a body, or that cannot be told."""
        if body.gives_plainly(place):
            return True
        return self._noted(self._sure, (body, place, start), lambda: self._has_at_end(body, place, start))

    def _has_at_end(self, body: Body, place: str, start: Facts) -> bool:
        happens = Happens(self, body, place, 0)
        try:
            met = _walked(body.graph, start, happens, happens.step)
        except TooManyPaths:
            return True
        return all(s.has for s in met.at(body.graph.exit))


def _walked(
    graph: Graph, start: Facts, happens: Happens, seeing: Callable[[Node, State, Facts], Iterable[State]]
) -> Walk[State]:
    """Every path through a body on which a place has no value yet.

    Raises TooManyPaths.
    """
    return walk(
        graph,
        [(start, State())],
        lambda node, state: [state],
        on_error=happens.on_error,
        about=happens.about,
        seeing=seeing,
        making=lambda stmt: happens.unset.given.made(happens.body.module.scope_of(stmt), stmt),
        settings=happens.unset.settings,
    )


def _entering(body: Body, facts: Facts) -> Facts:
    """The facts that speak of what a body was given, not of its own names."""
    kept = set()
    for key, holds in facts:
        try:
            names = {n.id for n in syntax.every(ast.parse(key, mode="eval"), ast.Name)}
        except SyntaxError:  # `a := b`
            continue
        if all(n in body.parameters or body.scope.binder(n) is not body.scope for n in names):
            kept.add((key, holds))
    return frozenset(kept)


def _endless(body: list[ast.stmt]) -> bool:
    return any(isinstance(s, ast.While) and isinstance(s.test, ast.Constant) for s in own_statements(body))
