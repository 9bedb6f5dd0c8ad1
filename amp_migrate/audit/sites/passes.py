"""What happens to the weights of networks within one autocast region: which ran, which were written to, which ran again.

A region's body is gone through in its order, with the functions and networks of the program that it calls; every branch
counts, a loop's body twice. Not followed: code out of sight, and functions deeper than `DEPTH` calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module, Scope
from amp_migrate.audit.sites.effects import Called, Effect, Effects
from amp_migrate.audit.sites.forwards import Forwards
from amp_migrate.audit.sites.happened import Blind, Stale, State, switched_apart
from amp_migrate.audit.sites.regions import Regions
from amp_migrate.audit.sites.setups import Identity
from amp_migrate.audit.sites.weights import Frame, Place, Value, Weights, covers, overlap
from amp_migrate.audit.sites.writers import (
    chosen_apart,
    gradients_off,
    stops_gradients,
)

_SIMPLE = frozenset({ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Pass, ast.Import, ast.ImportFrom})
DEPTH = 9
MOST = 300  # functions gone through for one region


@dataclass
class _Call:
    """A function being gone through; `does`: what the calls do in such a frame."""

    frame: Frame
    function: Function | None
    returned: State
    does: dict[ast.Call, Effect] | None = None


class Passes:
    """Goes through regions of one state of a program. `cleared`: what a backward pass made Apex forget its copies."""

    effects_of = Effects
    each_run = False  # whether each run is found; else the first after what was written

    def __init__(self, forwards: Forwards, regions: Regions, *, cleared: bool) -> None:
        self.program = forwards.program
        self.forwards = forwards
        self.regions = regions
        self.weights = Weights(forwards)
        self.weights.freeze(forwards.modules)
        self.effects = self.effects_of(forwards, self.weights)
        self.cleared = cleared
        self._does: dict[tuple[Scope, frozenset[tuple[str, Value]]], dict[ast.Call, Effect]] = {}
        self._idle: set[tuple[Function, frozenset[tuple[str, Value]]]] = set()  # functions that ran and wrote nothing
        self.happened = 0  # what ran, was written or cut short, up to now

    def run(self, module: Module, body: list[ast.stmt], most: int = MOST) -> list[Stale]:
        """The networks that run on copies of weights that are not theirs any more, in a region around a body."""
        function = module.function_around(body[0])
        self.state = State()
        self.found: dict[ast.AST, Stale] = {}
        self.blind: Stale | None = None
        self.budget = most
        self.stack: dict[Function | ast.Lambda, tuple[Module, ast.Call]] = {}  # what is gone through, by which calls
        self.uncached = 0
        # For each network that runs, how it and others that it is handed are called there, and what they are: these first.
        self.running: list[list[tuple[str, frozenset[Place]]]] = []
        self.runs: list[ast.Call] = []  # those calls
        self.gradless = int(gradients_off(self.program, module, body[0]))
        self._block(_Call(Frame(module.scope_of(body[0])), function, State(over=True)), body)
        found = sorted(self.found.values(), key=lambda s: (s.wrote[0].path, getattr(s.wrote[1], "lineno", 0)))
        return [*found, *((self.blind,) if self.blind is not None else ())]

    # -- statements --------------------------------------------------------------------------------------------------

    def _block(self, at: _Call, body: Iterable[ast.stmt]) -> None:
        for stmt in body:
            if self.state.over:
                return
            self._statement(at, stmt)

    def _statement(self, at: _Call, stmt: ast.stmt) -> None:
        if type(stmt) in _SIMPLE:
            for part in syntax.children(stmt):
                if isinstance(part, ast.expr):
                    self._expression(at, part)
            if isinstance(stmt, (ast.Assign, ast.AugAssign)):
                self._assigned(at, stmt)
        elif isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return
        elif isinstance(stmt, ast.If):
            self._expression(at, stmt.test)
            self._either(at, [stmt.body, stmt.orelse])
        elif isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
            self._expression(at, stmt.test if isinstance(stmt, ast.While) else stmt.iter)
            for _ in range(2):
                before = self.state
                self._either(at, [stmt.body, []])
                if self.state == before:
                    break
            self._block(at, stmt.orelse)
        elif isinstance(stmt, ast.Try):
            self._either(at, [stmt.body, *self._caught(stmt)])
            self._block(at, stmt.orelse)
            self._block(at, stmt.finalbody)
        elif isinstance(stmt, (ast.With, ast.AsyncWith)):
            self._with(at, stmt)
        elif isinstance(stmt, ast.Match):
            self._expression(at, stmt.subject)
            self._either(at, [*(c.body for c in stmt.cases), []])
        else:
            for part in syntax.children(stmt):
                if isinstance(part, ast.expr):
                    self._expression(at, part)
            if isinstance(stmt, ast.Return):
                at.returned.join(self.state)
            if isinstance(stmt, (ast.Return, ast.Raise)):
                self.state = State(over=True)

    def _caught(self, stmt: ast.Try) -> list[list[ast.stmt]]:
        return [h.body for h in stmt.handlers]

    def _either(self, at: _Call, bodies: list[list[ast.stmt]]) -> None:
        start, end = self.state, State(over=True)
        idle = False
        for body in bodies:
            self.state = start.copy() if body else start
            self._block(at, body)
            unchanged = self.state == start
            if not (unchanged and idle):  # what has changed nothing is joined once
                end.join(self.state)
            idle = unchanged
        self.state = end

    def _with(self, at: _Call, stmt: ast.With | ast.AsyncWith) -> None:
        calls = [i.context_expr for i in stmt.items]
        regions = [r for c in calls if (r := self.regions.opened(at.frame.scope.module, c)) is not None]
        uncached = any(r.off or _cache_off(r.call) for r in regions)
        for call in calls:
            self._manager(at, call, "__enter__")
        gradless = any(stops_gradients(self.program, at.frame.scope.module, c) for c in calls)
        self.uncached += uncached
        self.gradless += gradless
        self._block(at, stmt.body)
        self.uncached -= uncached
        self.gradless -= gradless
        if not self.state.over:
            for call in calls:
                self._manager(at, call, "__exit__")

    def _manager(self, at: _Call, expr: ast.expr, method: str) -> None:
        """What entering or leaving a context does: a generator is gone through both times."""
        self._expression(at, expr)
        if isinstance(expr, ast.Call):
            made = self.program.definitions(at.frame.scope, expr.func, guess=False)
            itself = Value("network", frozenset({((expr, (), at.frame.scope.module), ())}))
            for cls in made:
                if isinstance(cls, Class):
                    self._inline(at, expr, self.program._method(cls, method), itself, plain=True)

    # -- expressions -------------------------------------------------------------------------------------------------

    def _expression(self, at: _Call, expr: ast.expr) -> None:
        for node in syntax.calls_in_order(expr):
            if not self.state.over:
                self._call(at, node)

    def _call(self, at: _Call, call: ast.Call) -> None:
        func, frame = call.func, at.frame
        last = syntax.last(func)
        if last == "clear_autocast_cache":
            self.happened += 1
            self.state = State()
            return
        if last == "backward" and isinstance(func, ast.Attribute):
            self.happened += 1
            self.state.ran = dict.fromkeys(self.state.ran, True)
        if at.does is None:
            at.does = self._does.setdefault((frame.scope, frozenset(frame.names.items())), {})
        if call not in at.does:
            at.does[call] = self.effects.of(at.frame, call, last)
        what = at.does[call]
        if what.runs:
            self._run(at, call, what.network, what.functions)
        elif what.writes:
            self._write(at, call, what.writes)
        elif what.functions:
            self._inline(at, call, what.functions, what.network, partial=what.partial)

    def _inline(
        self,
        at: _Call,
        call: ast.Call,
        functions: Sequence[Called],
        itself: Value | None,
        *,
        plain: bool = False,
        partial: tuple[Module, ast.Call] | None = None,
    ) -> None:
        if not functions:
            return
        start, end = self.state, State(over=True)
        for function in functions:
            self.state = start.copy()
            if isinstance(function, Function):
                self._enter(at, call, function, itself, plain, partial)
            else:
                self._evaluate(at, call, *function)
            end.join(self.state)
        self.state = end if not end.over else start

    def _cut_short(self, function: Function | ast.Lambda) -> bool:
        """Whether a function is not gone through: one that runs already, or too deep."""
        cut = function in self.stack or len(self.stack) >= DEPTH or self.budget <= 0
        self.happened += cut
        return cut

    def _evaluate(self, at: _Call, call: ast.Call, module: Module, function: ast.Lambda) -> None:
        """What a lambda calls."""
        if self._cut_short(function):
            return
        given = dict(zip((p.arg for p in function.args.args), call.args, strict=False))
        given |= {k.arg: k.value for k in call.keywords if k.arg is not None}
        names = {name: v for name, expr in given.items() if (v := self.weights.of(at.frame, expr)) is not None}
        self.budget -= 1
        self.stack[function] = at.frame.scope.module, call
        self._expression(_Call(Frame(module.scope_for(function), names), None, State(over=True)), function.body)
        del self.stack[function]

    def _enter(
        self,
        at: _Call,
        call: ast.Call,
        function: Function,
        itself: Value | None,
        plain: bool,
        partial: tuple[Module, ast.Call] | None,
    ) -> None:
        if self._cut_short(function):
            return
        names: dict[str, Value] = {}
        bound = function.bound and isinstance(call.func, (ast.Attribute, ast.Name))
        if bound and function.parameters and itself is not None:
            names[function.parameters[0].arg] = itself
        whole, own, there = call, syntax.given(call), at.frame
        if partial is not None:  # what it binds comes first
            module, held = partial
            whole = ast.Call(held.args[0], [*held.args[1:], *call.args], [*held.keywords, *call.keywords])
            there = Frame(module.scope_of(held))
        given = {} if plain else self.program.arguments(function, whole, bound=bound) or {}
        for name, expr in given.items():
            value = self.weights.of(at.frame if expr in own else there, expr)
            if value is not None:
                names[name] = value
        key = function, frozenset(names.items())
        if key in self._idle:
            return
        self.budget -= 1
        happened = self.happened
        regions = [self.regions.opened(function.module, d) for d in function.node.decorator_list]
        uncached = any(r is not None and (r.off or _cache_off(r.call)) for r in regions)
        gradless = any(stops_gradients(self.program, function.module, d) for d in function.node.decorator_list)
        self.stack[function] = at.frame.scope.module, call
        self.uncached += uncached
        self.gradless += gradless
        inner = _Call(Frame(function.scope, names), function, State(over=True))
        self._block(inner, function.node.body)
        self.state.join(inner.returned)
        self.uncached -= uncached
        self.gradless -= gradless
        del self.stack[function]
        if self.happened == happened and not self.state.over:
            self._idle.add(key)

    # -- what is asked -----------------------------------------------------------------------------------------------

    def _run(self, at: _Call, call: ast.Call, network: Value | None, functions: Sequence[Called]) -> None:
        self.happened += 1
        places = network.places if network is not None else frozenset[Place]()
        places -= {p for p in places if self.weights.frozen(p)}
        given = ((syntax.last(e), self.weights.of(at.frame, e)) for e in syntax.given(call))
        handed = [(name, value.places) for name, value in given if value is not None]
        self.running.append([*handed, (syntax.last(call.func), places)])
        part = self.each_run and any(run in self.found for run in self.runs)  # of what is found
        self.runs.append(call)
        if not self.uncached:
            for stale, wrote in self.state.stale.items() if not part else ():
                if any(overlap(p, stale) for p in places):
                    about = call if self.each_run else wrote[1]
                    self.found.setdefault(about, Stale(at.frame.scope.module, call, wrote))
            self._ran_blind(at, call, places, bool(functions))
        self._inline(at, call, functions, network)
        self.runs.pop()
        self.running.pop()
        if not self.uncached:
            self.state.ran |= {p: self.state.ran.get(p, False) for p in places}

    def _ran_blind(self, at: _Call, call: ast.Call, places: frozenset[Place], followed: bool) -> None:
        """A run without gradients, or one with them of what ran without: its half copies have no history."""
        module, blind_before = at.frame.scope.module, self.state.blind
        trail = (*self.stack.values(), (module, call))
        if self.gradless:
            seeing: dict[Identity, list[Place]] = {}  # what ran with gradients, by the network that it is of
            for ran in self.state.ran.keys() - blind_before.keys() if places else ():
                seeing.setdefault(ran[0], []).append(ran)
            for place in places:
                if not any(covers(ran, place) for ran in seeing.get(place[0], ()) if ran not in blind_before):
                    named, whole = self._running(place)
                    blind_before.setdefault(place, Blind(module, call, named, whole, trail))
            return
        for place in places:
            named, whole = self._running(place)
            for blind, (where, first, earlier, of, led) in blind_before.items():
                if covers(blind, place) or (not followed and overlap(blind, place)):
                    if chosen_apart(where, first, module, call) or switched_apart(led, trail):
                        continue
                    if of and whole and not any(overlap(o, w) for o in of for w in whole) and self._of_network(place):
                        continue
                    if named == earlier or not self._of_factory(place):
                        self.blind = self.blind or Stale(module, call, (where, first), blind=True)

    def _running(self, place: Place) -> tuple[str, frozenset[Place]]:
        """The outermost network that a run of a place is a part of, and how that is called: one that is run, or is handed to
        what is."""
        *handed, run = self.running[0]
        return next((h for h in handed if any(overlap(p, place) for p in h[1])), run)

    def _of_factory(self, place: Place) -> bool:
        """Whether a function that several places call makes a network: it may be another one of each call."""
        function = _maker(place)
        return function is not None and (function.name == "__init__" or len(self.program.callers(function)) > 1)

    def _of_network(self, place: Place) -> bool:
        """Whether a method of a network makes another: a part, of which each network has its own."""
        owner = maker.owner if (maker := _maker(place)) is not None else None
        return owner is not None and self.program.is_network(owner)

    def _write(self, at: _Call, node: ast.AST, places: frozenset[Place]) -> None:
        self.happened += 1
        for ran, backed in self.state.ran.items():
            if backed or not self.cleared:
                for place in places:
                    if overlap(place, ran):
                        both = place if len(place[1]) > len(ran[1]) else ran
                        self.state.stale.setdefault(both, (at.frame.scope.module, node))

    def _assigned(self, at: _Call, stmt: ast.stmt) -> None:
        """`p.data = x`, `p.data += x`, `p[0] = x`, `p -= x`."""
        changed: list[ast.expr] = []
        if isinstance(stmt, ast.Assign):
            changed = stmt.targets
        elif isinstance(stmt, ast.AugAssign):
            changed = [stmt.target]
        for target in changed:
            if isinstance(target, ast.Attribute) and target.attr == "data":
                self._write(at, stmt, self.weights.weights(at.frame, target.value))
            elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
                held = target.value
                if not isinstance(held, ast.Name) or isinstance(stmt, ast.AugAssign):
                    self._write(at, stmt, self.weights.weights(at.frame, held))
            elif isinstance(target, ast.Name) and isinstance(stmt, ast.AugAssign):
                self._write(at, stmt, self.weights.weights(at.frame, target))


def _maker(place: Place) -> Function | None:
    """The function that makes a network."""
    node, module = place[0][0], place[0][-1]
    return module.function_around(node) if isinstance(node, ast.Call) and isinstance(module, Module) else None


def _cache_off(call: ast.Call) -> bool:
    return any(
        k.arg == "cache_enabled" and isinstance(k.value, ast.Constant) and k.value.value is False for k in call.keywords
    )
