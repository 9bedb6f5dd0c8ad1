"""The paths of a program from each of its entries, through all functions that have a part in the step."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.facts import NOTHING, Facts
from amp_migrate.audit.paths.flow import Edge, Node, TooManyPaths
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Function, Module, Scope
from amp_migrate.audit.program.syntax import text
from amp_migrate.audit.stepping.actions import Reached
from amp_migrate.audit.stepping.bodies import Bodies, Owner
from amp_migrate.audit.stepping.fixed import fixed
from amp_migrate.audit.stepping.gradients import asks_for, stepped_with_gradients
from amp_migrate.audit.stepping.handed import Handed
from amp_migrate.audit.stepping.learned import Learned
from amp_migrate.audit.stepping.machine import Grads, Machine, State
from amp_migrate.audit.stepping.objects import Env, Ident
from amp_migrate.audit.stepping.paths import Paths, Ways
from amp_migrate.audit.stepping.scaled import RETURNED, Entries
from amp_migrate.audit.stepping.statements import JUMPS, yields
from amp_migrate.audit.stepping.turns import counts, first_turn

DEPTH = 10
VISITS = 100_000  # places come by from one entry, each time with something else known or done before
WAITS = -1  # among the loops of a state: nothing happens until the `yield`; below it, which method an object has
WHOLE = ("backward", "step", "update")
CLEARING = ("zero_grad", "none", "clears")


class Runs(Learned):
    """Follows one program. `walk` gives the entries that could not be followed."""

    def __init__(self, bodies: Bodies, machine: Machine) -> None:
        super().__init__(bodies, machine)
        self._handings: dict[tuple[ast.Call, Function, int], tuple[Entries, dict[str, ast.expr], Handed, Facts]] = {}
        self._ways: dict[Owner, Ways] = {}
        self._methods: dict[Function, int] = {}
        self._paths: dict[tuple[Owner, int, frozenset[Ident]], Paths[State]] = {}
        self._arms: dict[tuple[ast.expr, int], tuple[bool, bool, bool]] = {}  # what the two arms of a test do

    @property
    def entries(self) -> list[Owner]:
        owners = [*self.bodies.own, *(o for o in self.bodies.calls if o not in self.bodies.own)]
        found = [o for o in owners if isinstance(o, Module) or not set(self.bodies.callers.get(o, ())) - {o}]
        return sorted(found, key=lambda o: (o.path, 0) if isinstance(o, Module) else (o.module.path, o.node.lineno))

    def walk(self, entries: Iterable[Owner]) -> list[Owner]:
        """The entries that could not be followed. Those that come by the same optimizers share what is found out: what others
        learned is freed, as a library has an entry for each of its tests."""
        lost: list[Owner] = []
        alike: dict[frozenset[Ident], list[Owner]] = {}
        for entry in entries:
            alike.setdefault(frozenset(self.met_from(entry)), []).append(entry)
        for met, several in alike.items():
            self._paths.clear()
            self._known: dict[object, tuple[Reached, ...]] = {}
            lost += self._walk(several, met)
        return lost

    def _walk(self, entries: Iterable[Owner], met: Iterable[Ident]) -> Iterator[Owner]:
        for entry in entries:
            self._stack: list[Owner] = []
            self._left = VISITS
            self.machine.enter(met)
            try:
                # Who calls an entry is out of sight: it may be called again and again. What is a part of the step only
                # has other parts before and after it.
                starts = {State(): None}
                whole = isinstance(entry, Function) and all(self.bodies.has(entry, n) for n in WHOLE)
                clears = self.bodies.has(entry, *CLEARING)
                for _ in range(3 if whole else 1):
                    ends = [s for start in starts for _, s in self._body(entry, (), NOTHING, start)]
                    ends = [self.machine.later(e.holding(frozenset())).turned(_marks_of(e)) for e in ends]
                    starts |= dict.fromkeys(ends if clears else map(self.machine.elsewhere, ends))
                    if len(starts) > 32:  # a program, not a step: its first run was followed
                        break
            except (TooManyPaths, RecursionError):
                yield entry

    # -- bodies ----------------------------------------------------------------------------------------------------

    def _body(self, owner: Owner, env: Entries, facts: Facts, state: State) -> tuple[Reached, ...]:
        own = fixed(owner, self.asked.by(owner)) if isinstance(owner, Function) else NOTHING
        ends = self._ends(owner, env, facts | own, state)
        return tuple(_distinct((known - (own - facts), end) for known, end in ends)) if own else ends

    def _ends(self, owner: Owner, env: Entries, facts: Facts, state: State) -> tuple[Reached, ...]:
        key = (owner, env, facts, state, self.machine.entered)
        if key in self._known:
            return self._known[key]
        if owner in self._stack or len(self._stack) >= DEPTH:
            return ((facts, state),)
        self._stack.append(owner)
        # What runs before the `yield` of a context manager runs on the way in, the rest on the way out.
        waits = WAITS in state.turns
        enters = isinstance(owner, Function) and _is_manager(owner) and not waits
        entered: dict[Reached, None] = {}
        known = self.env(env)
        if enters:
            paths = self._through(owner, known, entered)
        else:
            key_of_paths = owner, id(known), self.machine.entered
            if key_of_paths not in self._paths:
                self._paths[key_of_paths] = self._through(owner, known, None)
            paths = self._paths[key_of_paths]
        found = paths.explore([(facts, state)])
        self._stack.pop()
        chosen = (entered or found) if enters else [r for r in found if WAITS not in r[1].turns]
        self._known[key] = tuple(chosen)
        return self._known[key]

    def _through(self, owner: Owner, env: Env, entered: dict[Reached, None] | None) -> Paths[State]:
        """The paths through a body; where it is entered as a context manager, with what its `yield` is reached."""
        scope = owner.scope if isinstance(owner, Function) else owner.top

        def step(node: Node, facts: Facts, state: State) -> Iterable[Reached]:
            self._left -= 1
            if self._left < 0:
                raise TooManyPaths
            done = self._node(scope, env, node, facts, state)
            if entered is not None and node.stmt is not None and yields(node.stmt):
                entered.update(dict.fromkeys(done))
                return []
            return done

        matters, ways = self.asked.matters(owner), self._ways.setdefault(owner, {})

        def along(node: Node, edge: Edge, state: State) -> State | None:
            optimizer = stepped_with_gradients(node.stmt) if edge.test is not None else None
            if optimizer is not None:
                ref = self.ref(scope, optimizer, env)
                if self.machine.has_gradients(state, ref.ident) is (not edge.outcome):
                    return None
            return self._along(scope.module, node, edge, state)

        return Paths(self.bodies.graph(owner), step, along, matters, self._error, ways, self._begun)

    def _error(self, state: State) -> list[State]:
        """An exception is expected of a forward or a backward, not of what comes between unscaling and the update."""
        if any(g.stage in ("unscaled", "stepped") for _, g in state.optimizers):
            return []
        return [self.machine.left_out(state, "skipped")]

    def _along(self, module: Module, node: Node, edge: Edge, state: State) -> State | None:
        stmt = node.stmt
        whole: ast.AST | None = getattr(stmt, "whole", stmt)
        if type(stmt) is ast.If and isinstance(whole, ast.If) and edge.test is not None:
            other = whole.orelse if edge.outcome else whole.body
            taken = whole.body if edge.outcome else whole.orelse
            if any(self.bodies.does(s, "backward") for s in other):
                if not any(self.bodies.does(s, "backward") for s in taken):
                    if not taken and isinstance(whole.test, ast.Attribute) and whole.test.attr == "training":
                        return None  # a step comes to models that train
                    state = self.machine.left_out(state, "skipped")
            state = self._kept_by(module, whole.test, taken, other, state)
        if not edge.error and whole is not None and type(stmt) in LOOPS:
            state_or_none = self._turn(whole, edge, state)
            if state_or_none is None:
                return None
            state = state_or_none
        if edge.loops and edge.to.stmt is not None:
            loop = getattr(edge.to.stmt, "whole", edge.to.stmt)
            again = not self.bodies.does(loop, "backward")
            state = self.machine.left_out(state, "again") if again else self.machine.later(state)
            state = state.turned(state.turns | {id(loop)})
        elif edge.to.kind == "next" and id(loop := getattr(edge.to.stmt, "whole", edge.to.stmt)) in state.turns:
            state = state.turned(state.turns - {id(loop)})  # it was left by a `break` last
        return state

    def _kept_by(
        self, module: Module, test: ast.expr, taken: list[ast.stmt], other: list[ast.stmt], state: State
    ) -> State:
        """What a test means for gradients that nothing clears: it counts the backwards to a step, or passes by what clears."""
        if (test, id(taken)) not in self._arms:  # whatever the state
            clears = [any(self.bodies.does(s, *CLEARING) for s in arm) for arm in (taken, other)]
            acts = (
                self.bodies.does(s, "step") or any(isinstance(n, JUMPS) for n in syntax.walk(s))
                for s in (*taken, *other)
            )
            self._arms[test, id(taken)] = clears == [False, True], any(acts), counts(self.bodies, module, test)
        passes_by, decides, counted = self._arms[test, id(taken)]
        if passes_by:
            if asks_for(test, other):
                return self.machine.elsewhere(state)
            return self.machine.keeps(state, f"`{text(test)}`", counted)
        return self.machine.counts(state) if decides and counted else state

    def _begun(self, loop: ast.For, state: State) -> Facts:
        """What is known of a loop as a turn of it begins."""
        return first_turn(loop) if id(getattr(loop, "whole", loop)) not in state.turns else NOTHING

    def _turn(self, loop: ast.AST, edge: Edge, state: State) -> State | None:
        """Into the body of a loop, or out of it: no loop over batches or optimizers is without a turn."""
        targets = [(i, members) for i, (at, members) in self.objects.loops.items() if at is loop]
        if edge.outcome:
            for ident, members in targets:
                known = self.machine.targets(members, self.machine.optimizers)
                of = {state.of(t) for t in known}
                alone = len(of) == 1 and not self.machine.others(members, known)
                state = state.put({ident: of.pop() if alone else Grads()})
            return state
        if id(loop) not in state.turns:
            return None
        for ident, members in targets:
            if ident in self.machine.optimizers:
                state = state.put({t: state.of(ident) for t in self.machine.targets(members, self.machine.optimizers)})
        return self.machine.later(state.turned(state.turns - {id(loop)}))

    def _node(self, scope: Scope, env: Env, node: Node, facts: Facts, state: State) -> Iterable[Reached]:
        if node.stmt is None:
            return [(facts, state)]
        if WAITS in state.turns:  # the part of a context manager before its yield has run
            if not yields(node.stmt):
                return [(facts, state)]
            return [(facts, state.turned(state.turns - {WAITS}))]
        reached: list[Reached] = [(facts, state)]
        if node.kind == "leave":
            assert isinstance(node.stmt, (ast.With, ast.AsyncWith))
            for item in reversed(node.stmt.items):
                expr = item.context_expr
                reached = _distinct(r for f, s in reached for r in self._context(scope, env, expr, f, s, after=True))
            return reached
        for action in self.bodies.actions(node.stmt):
            reached = _distinct(r for f, s in reached for r in self._act(env, action, f, s))
        if isinstance(node.stmt, (ast.With, ast.AsyncWith)):
            for item in node.stmt.items:
                expr = item.context_expr
                reached = _distinct(r for f, s in reached for r in self._context(scope, env, expr, f, s))
        return [(f, self.bind(scope, env, node.stmt, f, s)) for f, s in reached]

    def _context(
        self, scope: Scope, env: Env, expr: ast.expr, facts: Facts, state: State, after: bool = False
    ) -> Iterable[Reached]:
        """What a context manager of the program does on the way in, or out."""
        if not isinstance(expr, ast.Call):
            return [(facts, state)]
        for function in self.bodies.callees(scope.module, expr):
            if function not in self.bodies:
                continue
            if function.name == "__init__" and function.owner is not None:
                name = "__exit__" if after else "__enter__"
                for method in self.objects.values.program._method(function.owner, name):
                    if method in self.bodies:
                        return self._into(scope, env, self._implied(expr, name), method, facts, state)
            elif after and _is_manager(function):
                return self._into(scope, env, expr, function, facts, state, frozenset({WAITS}))
        return [(facts, state)]

    @kept
    def _implied(self, expr: ast.Call, name: str) -> ast.Call:
        """The call of `__enter__` or `__exit__` that `with` makes."""
        func = ast.Attribute(expr, name, ast.Load())
        return ast.copy_location(ast.Call(func, [], []), expr)

    # -- calls -----------------------------------------------------------------------------------------------------

    def _call(
        self, scope: Scope, env: Env, call: ast.Call, callees: tuple[Function, ...], facts: Facts, state: State
    ) -> Iterable[Reached]:
        chosen = [f for f in callees if f in self.bodies]
        if not chosen:
            return [(facts, state)]
        reached: dict[Reached, None] = {}
        marks = self._marks(scope, call, chosen)
        known = [f for f in chosen if marks.get(f) in state.turns]
        for function in known or chosen:
            mark = {marks[function]} if function in marks else set()
            for f, s in self._into(scope, env, call, function, facts, state):
                reached[f, s.turned(s.turns | mark)] = None
        if len(chosen) < len(callees) and not known:
            reached[facts, state] = None
        return reached

    def _marks(self, scope: Scope, call: ast.Call, methods: list[Function]) -> dict[Function, int]:
        """What tells on a path which of several methods `self.step()` runs: the object of a body has one class, in every turn of
        a loop."""
        on = call.func.value if isinstance(call.func, ast.Attribute) else None
        if len(methods) < 2 or on is None or self.objects.values.program.is_self(scope, on) is None:
            return {}
        return {f: self._methods.setdefault(f, WAITS - 1 - len(self._methods)) for f in methods}

    def _into(
        self,
        scope: Scope,
        env: Env,
        call: ast.Call,
        function: Function,
        facts: Facts,
        state: State,
        turns: frozenset[int] = frozenset(),
    ) -> dict[Reached, None]:
        inner, filled, handed, constants = self._handing(scope, env, call, function)
        names = handed.names
        passed, kept = handed.into(facts)
        passed |= constants
        values = frozenset((p, s, n) for name, s, n in state.scaled for p in [names.get(name)] if p)
        for parameter, given in filled.items():
            if (found := self.scaled(scope, env, given, facts, state)) is not None:
                values |= {(parameter, *found)}
        own = "self" in (names.get("self"), names.get("super()"))
        values |= {v for v in state.scaled if v[0].startswith("self.") and own}
        start = state.holding(values).turned(turns | _marks_of(state) if own else turns)
        reached: dict[Reached, None] = {}
        for known, end in self._body(function, inner, passed, start):
            scaled = {v for v in state.scaled if not v[0].startswith(RETURNED)}
            given = call.func.value if function.name == "__enter__" and isinstance(call.func, ast.Attribute) else call
            scaled |= {(f"{RETURNED}{id(given)}", s, n) for t, s, n in end.scaled if t == RETURNED}
            scaled |= {v for v in end.scaled if v[0].startswith("self.") and own}
            turned = state.turns | _marks_of(end) if own else state.turns
            reached[kept | handed.back(known), end.holding(frozenset(scaled)).turned(turned)] = None
        return reached

    def _handing(
        self, scope: Scope, env: Env, call: ast.Call, function: Function
    ) -> tuple[Entries, dict[str, ast.expr], Handed, Facts]:
        """What a call hands a function, whatever is known on the path: what parameters stand for, the arguments, names as
        the caller and as the function writes them, and what constants tell."""
        key = (call, function, id(env))
        if key not in self._handings:
            filled, inner, own = self.given(scope, env, call, function)
            names: dict[str, str] = {}
            for parameter, given in filled.items():
                if isinstance(given, (ast.Name, ast.Attribute)):
                    names.setdefault(text(given), parameter)
            if own and isinstance(call.func, ast.Attribute) and function.parameters:
                names.setdefault(text(call.func.value), function.parameters[0].arg)
            handed = Handed(function, names, self.asked.by(function), filled)
            self._handings[key] = inner, filled, handed, handed.constants(call, filled)
        return self._handings[key]


LOOPS = frozenset({ast.For, ast.AsyncFor, ast.While})


def _marks_of(state: State) -> frozenset[int]:
    """Which methods an object was seen to have."""
    return frozenset(t for t in state.turns if t < WAITS)


def _distinct(reached: Iterable[Reached]) -> list[Reached]:
    return list(dict.fromkeys(reached))


def _is_manager(function: Function) -> bool:
    names = {getattr(d, "attr", getattr(d, "id", "")) for d in function.node.decorator_list}
    return bool(names & {"contextmanager", "asynccontextmanager"})
