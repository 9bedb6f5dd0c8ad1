"""How the switch of mixed precision is written where a region or a scaler asks for it: as the program spells it, asked of the
scaler, or of a variable that is handed along like one."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.reading.conditions.tests import excludes
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.tree import identifiers, walk
from amp_migrate.reading.regions.renewed import never_cast, runs_new
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.scaler.left_out import left_out
from amp_migrate.reading.switch.elsewhere import expanded, through_field, visible
from amp_migrate.reading.switch.flag import Flag, distinct, without_implied
from amp_migrate.reading.switch.flags import asked_around, flag_around, guard_parts, init_flag, where_half
from amp_migrate.reading.switch.given_again import stored_fields
from amp_migrate.reading.switch.handed_amp import given_sometimes
from amp_migrate.reading.switch.on_ways import on_ways
from amp_migrate.reading.switch.other_names import under_other_name
from amp_migrate.reading.switch.ways import on_the_way
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.naming import free
from amp_migrate.reading.units.native_switches import shared_switches
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Blocked, Init
from amp_migrate.reading.values.bools import as_bool
from amp_migrate.reading.values.sources import Sources
from amp_migrate.rules.given_since import DEPTH, GivenSince

if TYPE_CHECKING:
    from amp_migrate.rules.migration import Migration

NAMES = ("use_amp", "amp_enabled", "mixed_precision", "autocast_enabled", "native_amp_enabled")


class Switch:
    """The switch of one unit's migration."""

    def __init__(self, m: Migration) -> None:
        self.m, self.unit, self.project = m, m.unit, m.project
        self._plan: ScalerPlan | None = None
        self._used = False
        self._given_again = GivenSince(m)

    @property
    def plans(self) -> list[ScalerPlan]:
        """How the variable that holds it is handed along; none where nothing reads one."""
        return [self._plan] if self._plan is not None and self._used else []

    def at(self, module: Module, node: ast.AST) -> str | None:
        """The switch as it can be written at a node; None where mixed precision is always on."""
        scope = module.scope_of(node)
        if scope in self.unit.handed:
            try:
                return self._switch_at(module, node)
            except Blocked:
                if self.unit.handed[scope]:
                    raise
                del self.unit.handed[scope]
        flags = self.flags(scope)
        if self.m.scales and any(
            left_out(self.project, h) for h in self.m.scaler.governing(scope) if h.scope is not scope
        ):
            return (self._without if self._runs_without(scope) else self._asked)(module, node)
        if self._is_on(module, node):
            return None
        way = self._on_the_way(scope)
        if not flags or all(f.always for f in flags):
            given_some = self._given_sometimes(scope) if self.m.scales else False
            if given_some and all(f.scope is not scope for f in flags):
                return self._asked(module, node)
            if self._runs_without(scope):
                return self._without(module, node)
            return as_bool(self.project, scope, " and ".join(way)) if way else None
        if len({f.text() for f in flags}) > 1:
            return self._asked(module, node)
        flag = self._asked_by_callers(self._asked_around(flags[0], module, node), scope)
        if flag.always:
            return None
        if not flag.never and self._runs_without(scope):
            return self._without(module, node)
        there = self._seen_from(flag, scope, module.statement(node))
        seen = there.text() if there is not None else None
        if seen is not None and not flag.never:
            seen = " and ".join(without_implied(distinct([*way, seen])))
        read = any(i.spread is not None for i in self.unit.inits)  # out of a mapping: once, not at every region
        if flag.never or (seen is not None and flag.simple and not read):
            return as_bool(self.project, scope, seen or flag.text())
        held = self._asks_scaler and not any(h.idle for h in self.m.scaler.governing(scope))
        near = held and self.m.scaler.near(scope)
        if near or (held and seen is None and not (flag.simple and not read and self._at_hand(scope))):
            return self._asked(module, node)
        if seen is None or self._kept:
            try:
                return self._switch_at(module, node)
            except Blocked:
                other = self._under_other_names(flag, scope, module.statement(node)) if seen is None else None
                seen = " and ".join(distinct([*way, other])) if other is not None else seen
                if seen is None:
                    raise
        return as_bool(self.project, scope, seen)

    def _given_sometimes(self, scope: Scope) -> bool:
        """Whether what is handed on in place of amp, or its handle, is None or off on some ways: it knows whether it is on."""
        function = self.project.functions.get(scope.outermost.node)
        name = self.m.scaler.amp_parameter(function) if function is not None else None
        told = function is not None and name is not None and given_sometimes(self.project, function, name)
        return told or self.m.scaler.given_sometimes

    def _without(self, module: Module, node: ast.AST) -> str:
        """The switch where a program runs that sets nothing up: of a scaler that is there, and disabled for such a program,
        or handed along by itself."""
        threads = self.m.scaler.threads.values() if self.m.scales else ()
        apart = any(thread.apart or thread.stands_in for thread in threads)
        asks = apart and self.m.scaler.near(module.scope_of(node))
        return self._asked(module, node) if asks else self._switch_at(module, node)

    def flags(self, scope: Scope) -> list[Flag]:
        """The switches of the scalers that govern a scope; those of the `initialize` calls where there is none."""
        return [self._with_call(h) for h in self.m.scaler.governing(scope)] or [
            flag_around(self.project, init) for init in self.unit.inits
        ]

    def _with_call(self, home: Home) -> Flag:
        """The switch of a scaler that is created beside a call of what sets up, with what that stands under."""
        if home.scope is home.init.site.scope or home.init.halving:  # what is made half by hand is so before
            return where_half(self.project, home.init, home.flag)
        around = asked_around(self.project, home.scope.module, home.anchor)
        asked = [part for part in around if "__name__" not in part]
        return home.flag.joined(asked) if asked else home.flag

    def _asked_around(self, flag: Flag, module: Module, node: ast.AST, since: Sequence[Init] = ()) -> Flag:
        """The switch without what the conditions around a node ask already, off where they exclude it; not those that go,
        as both branches are one, nor what may be another thing since a set-up (some: all of the unit)."""
        if flag.parts is None or flag.scope is not module.scope_of(node):
            return flag
        asked, known = set[str](), set[str]()  # of which what was asked once for the set-up and a node below it is
        above = self._above(module, node)
        for guard, parts in guard_parts(self.project, module, module.statement(node)):
            if guard in self.m.pairs:
                continue
            branch = guard.body if module.inside_of(node, guard.body) else guard.orelse
            if any(module.inside_of(i.stmt, branch) for i in above):
                known |= {ast.unparse(ast.parse(p)) for p in parts or ()}
            inside = {n for s in (*guard.body, *guard.orelse) for n in walk(s)}
            for part in parts or ():
                names = identifiers(ast.parse(part))
                if not any(b in inside for name in names for b in flag.scope.bindings.get(name, ())):
                    asked.add(ast.unparse(ast.parse(part)))
        asked = known | (
            asked - {ast.unparse(ast.parse(p)) for p in flag.parts if self._given_again(p, flag.scope, since)}
        )
        if any(excludes(part, other) for part in flag.parts for other in asked):
            return Flag(flag.scope, None)
        return Flag(flag.scope, tuple(p for p in flag.parts if ast.unparse(ast.parse(p)) not in asked))

    def _above(self, module: Module, node: ast.AST) -> list[Init]:
        """The set-ups that stand above a node in its function."""
        scope, line = module.scope_of(node), module.statement(node).lineno
        return [i for i in self.unit.inits if i.site.scope is scope and i.stmt.lineno < line]

    def _asked_by_callers(self, flag: Flag, scope: Scope) -> Flag:
        """The switch of another scope without what stands around all calls of a function: `if found: ... evaluate(model)`."""
        function = self.project.functions.get(scope.node)
        calls = self.project.calls.get(function, ()) if function is not None else ()
        if not flag.parts or len(flag.parts) < 2 or function is None or self.project.once(Sources).is_value(function):
            return flag
        if not calls or not all(m.scope_of(c) is flag.scope for m, c in calls):
            return flag
        left = {self._asked_around(flag, m, c) for m, c in calls}
        asked = left.pop() if len(left) == 1 else flag
        gone = [p for p in flag.parts if p not in (asked.parts or ())]
        return flag if asked.never or asked.always or not all(self._bound_once(p, flag.scope) for p in gone) else asked

    def _is_on(self, module: Module, node: ast.AST, depth: int = 0) -> bool:
        """Whether one set-up comes before a place, or before each call of the function that it is in, and switches mixed precision
        on there, whatever others ask: a flag of it could have one value only."""
        scope = module.scope_of(node)
        function = self.project.functions.get(scope.node)
        if self._runs_without(scope):
            return False
        for init in self._above(module, node):
            if self._asked_around(flag_around(self.project, init), module, node, (init,)).always:
                return True
        calls = self.project.calls.get(function, ()) if function is not None and depth < DEPTH else ()
        if function is None or self.project.once(Sources).is_value(function):
            return False
        return bool(calls) and all(self._is_on(where, call, depth + 1) for where, call in calls)

    def on_ways(self, scope: Scope) -> list[set[str]] | None:
        """For each way to a function what a set-up on it asks; None where a way comes by none."""

        def asked(init: Init, module: Module, call: ast.Call) -> Flag | None:
            left = self._asked_around(flag_around(self.project, init), module, call, (init,))
            return self._seen_from(left, scope)

        return on_ways(self.unit, scope, asked)

    def _bound_once(self, part: str, scope: Scope) -> bool:
        """Whether a condition is the same wherever it is asked: nothing that it names is bound again, no field of it set."""
        tree = ast.parse(part)
        bound = (len(owner.bindings.get(n, ())) for n in identifiers(tree) if (owner := scope.lookup(n)) is not None)
        return all(count < 2 for count in bound) and not any(stored_fields(self.project, scope.module, tree))

    def off_at(self, module: Module, node: ast.AST) -> bool:
        """Whether what is asked around a node excludes every switch, or none is ever on: O0, which is written down."""
        flags = self.flags(module.scope_of(node))
        return bool(flags) and all(self._asked_around(f, module, node).never for f in flags)

    def _told_at(self, module: Module, node: ast.AST) -> str | None:
        """The switch as an argument where a node stands: evaluated there, or asked of the scaler that an object in sight keeps, or
        that users hand over."""
        scope = module.scope_of(node)
        text = self.evaluated(scope, node) if not self._kept else None
        if text == "True" and self.m.set_up.entered_alone(scope) and self.evaluated(scope) == "True":
            return None
        off = self._is_beside(scope) or self._runs_without(scope) or not self._asks_scaler
        if text is not None or off:
            return text
        holder = self.m.scaler.holder(module, scope, node)
        if holder is None and not self.m.unit.inits and self.m.scaler.near(scope):
            holder = self.m.scaler.at(module, node)
        return f"{holder}.is_enabled()" if holder is not None else None

    def evaluated(self, scope: Scope, node: ast.AST | None = None) -> str | None:
        """The switch as an argument, where it is not set by several `initialize` calls and can be evaluated in a scope; at a node
        of it without what stands around that."""
        handed = scope in self.unit.handed or self._runs_without(scope) or scope.module not in self.unit.cast
        seen = None if handed or self._is_beside(scope) else self._read(scope, node)
        if seen is None:
            return None
        switch = seen.joined(self._on_the_way(scope))
        if node is not None:
            switch = self._asked_around(switch, scope.module, node)
        return as_bool(self.project, scope, switch.text())

    def _is_beside(self, scope: Scope) -> bool:
        """Whether a scope is that of a script beside the one that trains."""
        return scope.is_module and not self.m.set_up.comes_by(scope.module)

    def _at_hand(self, scope: Scope) -> bool:
        """Whether all that calls a function can tell it whether mixed precision is on: a scaler that it is only to ask would be
        one parameter more of a kind that it has no use for."""
        function = self.project.functions.get(scope.node)
        calls = self.project.calls.get(function, []) if function is not None else []
        return bool(calls) and all(self.evaluated(module.scope_of(call)) is not None for module, call in calls)

    def read_in(self, scope: Scope) -> str | None:
        """The switch as it reads in a scope, `True` where mixed precision is always on; None where it cannot be read."""
        seen = self._read(scope)
        return seen.text() if seen is not None else None

    def _read(self, scope: Scope, node: ast.AST | None = None) -> Flag | None:
        flags = self.flags(scope)
        if not flags or all(f.always for f in flags):
            return Flag(scope)
        at = scope.module.statement(node) if node is not None else None
        if len({f.text() for f in flags}) > 1:
            return None
        seen = self._seen_from(flags[0], scope, at, by_field=True)
        if seen is None and at is not None and not self._asks_scaler:
            other = self._under_other_names(flags[0], scope, at)
            seen = Flag(scope, (other,)) if other is not None else None
        return seen

    def _under_other_names(self, flag: Flag, scope: Scope, at: ast.stmt) -> str | None:
        """The switch as it reads at a statement where what it is asked of has another name; None where it has none."""
        texts = [under_other_name(self.project, part, flag.scope, scope, at) for part in flag.parts or ()]
        if None in texts or not texts or any(self._given_again(part, flag.scope) for part in flag.parts or ()):
            return None
        return " and ".join(distinct([t for t in texts if t is not None]))

    def _asked(self, module: Module, node: ast.AST) -> str:
        """`scaler.is_enabled()`, where the scaler can be handed to a node; else the variable that holds the switch."""
        if self._asks_scaler:
            saved = self.m.scaler.snapshot()
            self.m.scaler.demands = False  # only to ask whether it is enabled
            try:
                return f"{self.m.scaler.at(module, node)}.is_enabled()"
            except Blocked:
                self.m.scaler.restore(saved)
            finally:
                self.m.scaler.demands = True
        return self._switch_at(module, node)

    def _switch_at(self, module: Module, node: ast.AST) -> str:
        """A variable that holds the switch, handed along like a scaler: nothing else reaches this place."""
        plan = self._plan or self._planned(module, node)
        saved = plan.snapshot()
        try:
            text = plan.at(module, node)
        except Blocked:
            plan.restore(saved)
            raise
        self._plan, self._used = plan, True  # a place that it cannot be handed to has no say in where it is kept
        return text

    def _planned(self, module: Module, node: ast.AST) -> ScalerPlan:
        plan = ScalerPlan(self.unit, free(self.unit, NAMES))
        plan.optional = True
        plan.taken = shared_switches(self.unit) | self.m.earlier.switches
        plan.seen, plan.never, plan.passed_by = self._told_at, self._float32_at, self.m.set_up.never_at
        plan.entered = self.m.set_up.begins_alone
        plan.settle([(module, node)])
        return plan

    def _float32_at(self, module: Module, node: ast.AST) -> bool:
        """Whether what a call runs was in float32: no set-up comes before it, or it is given a network that none is about."""
        given = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []
        models = [value for value in given if self.m.regions.forwards.is_model(module, value)]
        if self.m.set_up.tested(module.scope_of(node)) or self.m.set_up.never_at(module, node):
            return True
        if any(never_cast(self.unit, module, model) for model in models):
            return True
        forwards = self.m.regions.forwards
        return isinstance(node, ast.Call) and runs_new(self.unit, module, node, forwards.is_model)

    def is_kept_as(self, scope: Scope, node: ast.AST, field: str) -> bool:
        """Whether this unit gives an object the switch in a field that a region of another unit asks, too."""
        plan, used, saved = self._plan, self._used, self._plan.snapshot() if self._plan is not None else ()
        with contextlib.suppress(Blocked):
            if self._switch_at(scope.module, node) == field and self._plan is not None:
                self._plan.left_on(self.m.earlier.fields[field])
                return True
        self._plan, self._used = plan, used
        if plan is not None:
            plan.restore(saved)
        return False

    def _seen_from(self, flag: Flag, scope: Scope, at: ast.stmt | None = None, by_field: bool = False) -> Flag | None:
        """The switch as it reads in a scope, or at a statement; None where it cannot be evaluated there. A field is read where no
        scaler is kept beside it, that can be asked, or `by_field`."""
        if flag.parts is None:
            return Flag(scope, None)
        texts: list[str] = []
        asks = not by_field and self._asks_scaler and self.m.scaler.keeps(self.project.class_of(scope))
        for part in flag.parts:
            if self._given_again(part, flag.scope):
                return None
            seen = self.m.scaler.as_seen(part, flag.scope, scope, at)
            if seen is None and not asks:
                seen = through_field(self.project, part, flag.scope, scope)
            if seen is not None:
                texts.append(seen)
                continue
            longer = expanded(flag.scope, part)
            if longer in (part, "True", "False") or not visible(self.project, longer, flag.scope, scope, at):
                return None  # a literal is what a name is set to today: whoever sets it otherwise asks by the name
            if self._given_again(longer, flag.scope):
                return None
            texts.append(longer)
        return Flag(scope, without_implied(distinct(texts)))

    def _on_the_way(self, scope: Scope) -> list[str]:
        """What a run asks for that comes by `initialize` before it comes to a scope, as it reads there: other runs had no
        mixed precision, if nothing else set it up in them."""
        asked, *others = [on_the_way(self.project, *place, scope) for place in self.m.set_up.places] or [[]]
        if any(other != asked for other in others) or (asked and self.unit.beside and self._set_up_anyway(scope)):
            return []
        seen = [self.m.scaler.as_seen(part, home, scope) for part, home in asked]
        return [part for part in seen if part is not None] if None not in seen else []

    def _set_up_anyway(self, scope: Scope) -> bool:
        """Whether every way to a function comes by a set-up that is on where the flag of this unit is."""
        own, ways = self._read(scope), self.on_ways(scope)
        return own is not None and ways is not None and all(way <= {*(own.parts or ())} for way in ways)

    def _runs_without(self, scope: Scope) -> bool:
        """Whether a program that never sets mixed precision up runs what stands in a scope: it stays in float32."""
        return bool(self.unit.inits) and self.m.set_up.left_out(scope)

    @cached_property
    def _asks_scaler(self) -> bool:
        """Whether a scaler is enabled in just the runs that cast: not one that is off, as its scale is 1, nor one that scales at
        O0 as well."""
        inits = self.unit.inits
        off = any(static_scale(i) == 1.0 or (isinstance(i, LegacyInit) and i.scale.off) for i in inits)
        return self.m.scales and not off and not self.apart

    @cached_property
    def apart(self) -> bool:
        """Whether what is cast hangs on more than what is scaled: on the level."""
        return any(init_flag(self.project, i).scaling is not None for i in self.unit.inits)

    @cached_property
    def _kept(self) -> bool:
        """Whether it is kept in a variable beside the scaler, as that cannot be asked, and it is long."""
        flags = [flag_around(self.project, init) for init in self.unit.inits]
        return self.m.scales and self.apart and not all(f.never or f.simple for f in flags)
