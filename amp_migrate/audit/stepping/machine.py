"""What each event does to the gradients of an optimizer and to a scaler, as torch's GradScaler has it. They are zeroed, scaled,
stale (scaled before the last `update`), unscaled, left (unscaled before it), plain (of a backward without scale; reached, where it
is seen to come by these parameters), faint (of one that may reach no parameter), mixed or used up by a step; where nothing is
known, open. What is met is noted for each place: what is wrong on every path, and on one.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from amp_migrate.audit.program.module import Module
from amp_migrate.audit.stepping.objects import Ident, Objects, Ref, parts, place_made

OPEN, ZERO, ZEROS, SCALED, STALE, UNSCALED, LEFT, PLAIN, REACHED, FAINT, OTHER_MODE, MIXED, USED = (
    "open zero zeros scaled stale unscaled left plain reached faint other-mode mixed used".split()
)
# What is wrong with a step, and with `unscale_`, of what the same scaler has stepped or unscaled.
_STEPPED = {"stepped": "not updated"}
_UNSCALED = {"unscaled": "twice", "stepped": "after step"}
BOUND = "bound"  # said of a clip whose bound carries another scale than the gradients do
COUNTED = "counted"  # a test that counts backwards came between a backward and its step
EMPTIED = "emptied"  # said of gradients that were cleared after their step, with no backward since in the same turn
ELSEWHERE = "elsewhere"  # code out of sight may have cleared them
KEPT = "nothing"  # cleared them, and no test says why
BESIDE = "beside"  # said of a plain step on what a loss gave that was scaled for other optimizers


class Grads(NamedTuple):
    """The gradients of one optimizer and how far its scaler is with it.

    `kept`: of what a step left, the test that passed by what clears it, or a word for why none did; of what a backward added to
    that since, the same, in words."""

    held: str = OPEN
    passed: str = ""  # "skipped": a backward was left out on this path; "again": a loop came back without one
    stage: str = "?"  # "ready", "unscaled", "stepped": torch's OptState
    by: Ident = ""
    beside: bool = False  # whether a loss that was scaled for other optimizers reaches its parameters
    sure: bool = False  # whether the scaled loss that gave them is seen to reach these parameters
    kept: str = ""


@dataclass(frozen=True)
class State:
    optimizers: tuple[tuple[Ident, Grads], ...] = ()
    recorded: tuple[tuple[Ident, str], ...] = ()  # scaler: "yes" if inf checks were made since the last update, "no"
    scaled: frozenset[tuple[str, Ident, int]] = (
        frozenset()
    )  # names that hold a scaled value, by which scaler, how often
    turns: frozenset[int] = frozenset()  # loops that had a turn

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # states are looked up far more often than they are made
        return hash((self.optimizers, self.recorded, self.scaled, self.turns))

    def of(self, ident: Ident) -> Grads:
        return dict(self.optimizers).get(ident, Grads())

    def put(self, changes: dict[Ident, Grads]) -> State:
        if not changes:
            return self
        optimizers = tuple(sorted({**dict(self.optimizers), **changes}.items()))
        return State(optimizers, self.recorded, self.scaled, self.turns)

    def checks(self, scaler: Ident) -> str:
        return dict(self.recorded).get(scaler, "?")

    def record(self, scaler: Ident, value: str) -> State:
        recorded = tuple(sorted({**dict(self.recorded), scaler: value}.items()))
        return State(self.optimizers, recorded, self.scaled, self.turns)

    def holding(self, scaled: frozenset[tuple[str, Ident, int]]) -> State:
        return self if scaled == self.scaled else State(self.optimizers, self.recorded, scaled, self.turns)

    def turned(self, turns: frozenset[int]) -> State:
        return self if turns == self.turns else State(self.optimizers, self.recorded, self.scaled, turns)


@dataclass(frozen=True)
class Place:
    """One event at one place: what it is, of which optimizer or scaler."""

    what: str  # "step", "unscale", "update", "plain step", "read", "exchange", "backward"
    module: Module
    node: ast.AST
    ident: Ident


@dataclass
class Machine:
    """The objects of one program, and what was met."""

    objects: Objects
    managed: frozenset[str] = frozenset()  # places of optimizers whose loss Apex scaled before
    crowded: bool = False  # something else steps that may be an optimizer
    optimizers: set[Ident] = field(default_factory=set)  # those that the entry comes by that is followed
    entered: frozenset[Ident] = frozenset()  # those known when it was begun
    scalers: set[Ident] = field(default_factory=set)
    pairs: dict[Ident, set[Ident]] = field(default_factory=dict)  # an optimizer's scalers
    seen: dict[Place, set[str]] = field(default_factory=dict)
    _paired: dict[Ident, set[Ident]] = field(default_factory=dict)  # a scaler's optimizers
    _made: dict[str, dict[str, set[Ident]]] = field(default_factory=dict)  # by role and by a place where one is made
    _alone: set[Ident] = field(default_factory=set)  # optimizers without a scaler of their own
    _shared: set[str] = field(default_factory=set)  # the roles in which one was met that stands for several objects

    # -- objects ---------------------------------------------------------------------------------------------------

    def targets(self, ident: Ident, among: set[Ident]) -> list[Ident]:
        """The objects that an ident stands for: itself, or those in it that are known on their own."""
        if ident in self.objects.loops:
            return [ident]
        own = parts(ident)
        if own & self.objects.several:  # by whichever call it was made
            known = {i for i in among if i != ident and {place_made(p) for p in parts(i)} <= own}
            return sorted({ident, *known})
        if len(own) == 1:
            return [ident]
        inner = sorted(i for i in among if i != ident and i not in self.objects.loops and parts(i) < own)
        smallest = [i for i in inner if not any(parts(j) < parts(i) for j in inner)]
        return smallest or [ident]

    def others(self, members: Ident, known: Collection[Ident]) -> bool:
        """Whether optimizers are among some that none of those known on their own is."""
        made = self.objects.made
        left = [p for p in parts(members) if p in made and not any(p in parts(k) for k in known)]
        return any(self.objects.role(made[p]) == "optimizer" for p in left)

    def only(self, scaler: Ident) -> Ident:
        """The one scaler that an ident stands for, where some code sees less of it than other code."""
        targets = self.targets(scaler, self.scalers)
        return targets[0] if len(targets) == 1 else scaler

    def note(self, what: str, module: Module, node: ast.AST, ident: Ident, *tags: str) -> None:
        self.seen.setdefault(Place(what, module, node, ident), set()).update(tags or {"ok"})

    @property
    def single(self) -> bool:
        """Whether runs from the entry that is followed have one optimizer only."""
        if self.crowded:
            return False
        known: set[Ident] = set()
        for optimizer in self.optimizers:
            known.update(self.targets(optimizer, self.optimizers))
            if len(known) > 1:
                return False
        return len(known) == 1 and not known & self.objects.loops.keys()

    def scalers_of(self, optimizer: Ident) -> set[Ident]:
        found = {t for s in self.pairs.get(optimizer, ()) for t in self.targets(s, self.scalers)}
        if optimizer in self.objects.loops:
            return found
        loops = [i for i, (_, members) in self.objects.loops.items() if parts(members) & parts(optimizer)]
        for loop in loops:
            found |= self.pairs.get(loop, set())
        if not found and (self.single or self._is_managed(optimizer)):
            return set(self.scalers)
        return found

    def scaled_by(self, scalers: Collection[Ident]) -> list[Ident]:
        """The optimizers that one of some scalers is for, in order."""
        if self.objects.loops or self._shared:
            found = {o for o in self.optimizers if not self.scalers_of(o).isdisjoint(scalers)}
        else:
            found = {o for s in scalers for o in self._paired.get(s, ())} & self.optimizers
            if not self.scalers.isdisjoint(scalers):  # whoever has none of its own may have any
                found |= {o for o in self._alone & self.optimizers if self.single or self._is_managed(o)}
        # Code that sees more of them steps those that are known on their own.
        return sorted(found.union(*(self.targets(o, self.optimizers) for o in found)))

    def _is_managed(self, optimizer: Ident) -> bool:
        return any(place_made(p) in self.managed for p in parts(optimizer))

    def enter(self, met: Iterable[Ident]) -> None:
        """Only optimizers that were met on the ways from an entry have gradients in its runs."""
        self.optimizers = set()
        self._shared.discard("optimizer")
        for optimizer in met:
            self.meet(optimizer)
        self.entered = frozenset(self.optimizers)

    def meet(self, optimizer: Ident, scaler: Ident | None = None) -> None:
        self._know(optimizer, self.optimizers, "optimizer")
        if optimizer not in self.pairs:
            self._alone.add(optimizer)
        if optimizer in self.objects.loops:  # what one turn does to one of them is done to all
            self.meet(self.objects.loops[optimizer][1], scaler)
        if scaler is not None:
            self.know(scaler)
            self.pairs.setdefault(optimizer, set()).add(scaler)
            self._paired.setdefault(scaler, set()).add(optimizer)
            self._alone.discard(optimizer)

    def know(self, scaler: Ident) -> None:
        self._know(scaler, self.scalers, "scaler")

    def _know(self, ident: Ident, among: set[Ident], role: str) -> None:
        if ident not in among:
            among.add(ident)
            several = parts(ident)
            if len(several) > 1:
                self._shared.add(role)
            for part in several:
                self._made.setdefault(role, {}).setdefault(part, set()).add(ident)

    # -- events ----------------------------------------------------------------------------------------------------

    def made(self, state: State, place: str, role: str) -> State:
        if role == "optimizer":
            made = self._made.get(role, {}).get(place, set()) & self.optimizers
            return state.put({o: Grads(ZERO, "", "ready") for o in made})
        for scaler in sorted(self._made.get("scaler", {}).get(place, ())):
            state = state.record(scaler, "no")
            state = state.put({o: g._replace(stage="ready") for o, g in state.optimizers if g.by == scaler})
        return state

    def backward(
        self,
        state: State,
        scaler: Ident | None,
        plain: str = PLAIN,
        theirs: Collection[Ident] = (),
        *,
        only: bool = False,
    ) -> State:
        """`theirs`: optimizers that are seen to have what a backward reaches; `only`: by this loss, and not by another of its
        name, or with what is frozen at times."""
        changes: dict[Ident, Grads] = {}
        reached = sorted(self.optimizers) if scaler is None else self.scaled_by(self.targets(scaler, self.scalers))
        for optimizer in reached:
            now = state.of(optimizer)
            sure = scaler is not None and (self.single or (only and optimizer in theirs))
            if scaler is not None:
                held = STALE if now.held == STALE and now.sure and sure else SCALED  # what is added is of another scale
                if now.held == UNSCALED:
                    # What is added to unscaled gradients is scaled; of two optimizers it may be the other's.
                    held = MIXED if self.single and now.stage == "unscaled" else now.held
                    held = SCALED if now.stage != "unscaled" else held
                elif now.held in (REACHED, MIXED) or (now.held == PLAIN and self.single):
                    held = MIXED
            else:
                held, surely = now.held, plain == PLAIN and optimizer in theirs
                if held in (OPEN, ZERO, ZEROS, USED):
                    held = REACHED if surely else plain
                elif held in (PLAIN, FAINT) and surely:
                    held = REACHED
                elif held == SCALED and (surely or (self.single and plain == PLAIN)):
                    held = MIXED
            kept = "" if now.kept in (COUNTED, ELSEWHERE) else now.kept
            if now.held in (USED, LEFT) and scaler is not None and now.kept != ELSEWHERE:
                kept = kept or KEPT
            changes[optimizer] = now._replace(held=held, passed="", sure=sure or now.sure, kept=kept)
        # Without a scaler there are none: each of them has changed.
        changes |= {o: state.of(o)._replace(beside=True) for o in theirs if o not in changes}
        return state.put(changes)

    def divide(self, state: State, module: Module, node: ast.AST, scaler: Ident, of: Ref, steps: bool) -> State:
        """`unscale_`, or a step by the scaler."""
        self.meet(of.ident, scaler)
        scaler = self.only(scaler)
        targets = self.targets(of.ident, self.optimizers)
        for one in targets:
            now = state.of(one)
            if len(targets) == 1 and not of.every:
                again = (_STEPPED if steps else _UNSCALED).get(now.stage, "") if now.by == scaler else ""
                other = now.stage == "unscaled" and not parts(now.by) & parts(
                    scaler
                )  # divided them by its scale already
                wrong = again or ("other scaler" if other else self._wrong(now, scaler))
                self.note("step" if steps else "unscale", module, node, one, wrong)
                if steps and now.kept not in ("", COUNTED, ELSEWHERE):
                    self.note("kept", module, node, one, now.kept)
            unscaled = now._replace(held=UNSCALED, stage="unscaled", by=scaler, beside=False)
            kept = COUNTED if now.kept == COUNTED else ""
            state = state.put({one: Grads(USED, "", "stepped", scaler, kept=kept) if steps else unscaled})
        for one in self.targets(scaler, self.scalers):
            state = state.record(one, "yes")
        return state

    def _wrong(self, now: Grads, scaler: Ident) -> str:
        """What is wrong with gradients that a scaler is to divide by its scale."""
        if now.held in (ZERO, USED):
            return f"{now.held} {now.passed}".strip()
        if now.held in (FAINT, REACHED):
            return PLAIN
        if now.held == OTHER_MODE:
            return "ok" if self.switched(scaler) else PLAIN
        return now.held if now.held in (STALE, LEFT, PLAIN, MIXED) else "ok"

    def switched(self, scaler: Ident) -> bool:
        """Whether a scaler may be off in some runs, as where one that is off stands for it until another is made."""
        asked = [e for _, e in self.objects.enabled(scaler)]
        off = [e for e in asked if isinstance(e, ast.Constant) and not e.value]
        return 0 < len(off) < len(asked) or any(e is not None and not isinstance(e, ast.Constant) for e in asked)

    def update(self, state: State, module: Module, node: ast.AST, scaler: Ident, given: bool = False) -> State:
        """`given`: a new scale is set, which asks for no inf checks."""
        self.know(scaler)
        targets = self.targets(scaler, self.scalers)
        for one in targets:
            if len(targets) == 1:
                self.note(
                    "update", module, node, one, "nothing checked" if state.checks(one) == "no" and not given else "ok"
                )
            state = state.record(one, "no")
            changes = {}
            for optimizer in self.scaled_by([one]):
                now = state.of(optimizer)
                held = STALE if now.held == SCALED else now.held
                if held == UNSCALED and now.stage == "unscaled" and now.by == one:
                    held = LEFT  # the scaler has forgotten that it unscaled them
                changes[optimizer] = now._replace(
                    held=held, stage="ready" if now.by in (one, scaler, "") else now.stage
                )
            state = state.put(changes)
        return state

    def plain_step(self, state: State, module: Module, node: ast.AST, optimizer: Ident, excused: bool) -> State:
        self.meet(optimizer)
        targets = self.targets(optimizer, self.optimizers)
        tags = set()
        for one in targets:
            now = state.of(one)
            wrong = now.held in (SCALED, STALE, MIXED) or (now.held == UNSCALED and now.stage == "unscaled")
            tags.add(now.held if wrong and not (excused and self._may_be_off(one)) else BESIDE if now.beside else "ok")
            state = state.put(
                {one: Grads(USED, "", now.stage, now.by, kept=ELSEWHERE)}
            )  # what it left was never scaled
        self.note("plain step", module, node, optimizer, tags.pop() if len(tags) == 1 else "ok")
        return state

    def _may_be_off(self, optimizer: Ident) -> bool:
        return any(self.switched(s) for s in self.scalers_of(optimizer))

    def zero(self, state: State, optimizers: Iterable[Ident], held: str) -> State:
        changes = {}
        for optimizer in optimizers:
            self.meet(optimizer)
            for one in self.targets(optimizer, self.optimizers):
                emptied = EMPTIED if held == ZERO and state.of(one).held == USED else ""
                changes[one] = state.of(one)._replace(held=held, passed=emptied, beside=False, sure=False, kept="")
        return state.put(changes)

    def read(self, state: State, module: Module, node: ast.AST, of: Iterable[Ident], excused: bool, times: int) -> None:
        """Somebody looks at how large gradients are; of which optimizers is `of`, of any if that is empty. They are compared
        with what was multiplied by the scale so many `times`."""
        chosen = sorted(of) or sorted(self.optimizers)
        held = {o: state.of(t).held for o in chosen for t in self.targets(o, self.optimizers)}
        there = {o: h for o, h in held.items() if h not in (OPEN, ZERO, ZEROS, USED)}
        bad = (UNSCALED, LEFT, STALE, MIXED) if times else (SCALED, STALE, MIXED)
        wrong = bool(there) and (times not in (0, 1) or all(h in bad for h in there.values()))
        if wrong and not times and excused and all(self._may_be_off(o) for o in there):
            wrong = False
        self.note("read", module, node, "", "ok" if not wrong else BOUND if times else SCALED)

    def exchange(self, state: State, module: Module, node: ast.AST, of: Iterable[Ident]) -> None:
        """Gradients are replaced by what other processes may have; of which optimizers is `of`, of any if that is empty."""
        found = [state.of(t) for o in sorted(of) or sorted(self.optimizers) for t in self.targets(o, self.optimizers)]
        late = any(g.held == UNSCALED and g.stage == "unscaled" for g in found)
        self.note("exchange", module, node, "", UNSCALED if late else "ok")

    def has_gradients(self, state: State, optimizer: Ident) -> bool | None:
        """Whether an optimizer has gradients; None where that is not told."""
        held = {state.of(t).held for t in self.targets(optimizer, self.optimizers)}
        return None if len(held) != 1 or held & {OPEN, USED, ZEROS} else held != {ZERO}

    # -- paths -----------------------------------------------------------------------------------------------------

    def counts(self, state: State) -> State:
        """A test counts, after a backward, whether a step follows."""
        return state.put({o: g._replace(kept=COUNTED) for o, g in state.optimizers if g.held != USED and not g.kept})

    def keeps(self, state: State, test: str, counts: bool) -> State:
        """A test passes by what clears gradients. Where both it and the step's count, they may count to the same turn."""
        left = [(o, g) for o, g in state.optimizers if g.held in (USED, LEFT)]
        first = {o: test if g.kept in ("", COUNTED) else g.kept for o, g in left}
        known = (
            Grads(OPEN, g.passed, g.stage, g.by) if counts and g.kept == COUNTED else g._replace(kept=first[o])
            for o, g in left
        )
        return state.put(dict(zip((o for o, _ in left), known, strict=True)))

    def elsewhere(self, state: State) -> State:
        """What calls a function, or is called, out of sight may clear what a step left."""
        return state.put({o: g._replace(kept=ELSEWHERE if g.held in (USED, LEFT) else "") for o, g in state.optimizers})

    def left_out(self, state: State, passed: str) -> State:
        """A backward was not run where it might have been."""
        idle = [(o, g) for o, g in state.optimizers if g.held in (ZERO, USED) and g.passed in ("", EMPTIED)]
        return state.put({o: g._replace(passed=passed) for o, g in idle})

    def later(self, state: State) -> State:
        """In another turn of a loop, or after it."""
        return state.put({o: g._replace(passed="") for o, g in state.optimizers if g.passed == EMPTIED})
