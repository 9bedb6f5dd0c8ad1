"""Where the GradScaler of a unit is created, in this order: the same scope; `self.scaler` beside `self.optimizer`; a
script's module level; the object that carries `apex.amp`; the callers of a function that hands the optimizer out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import LOOP_NODES, Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import reached
from amp_migrate.reading.scaler.amp_kept import AMP
from amp_migrate.reading.scaler.guards import is_main_guard, only_asks_for_apex, runs_once, turns, under, within
from amp_migrate.reading.scaler.home import (
    Home,
    changed_inside,
    fails_before,
    found_by,
    join,
    may_be_on,
    only_inside,
    raised_again,
)
from amp_migrate.reading.scaler.prepared import of_self, set_anew, stored_on_self, thrown_away, without_optimizer
from amp_migrate.reading.switch.flag import Flag
from amp_migrate.reading.switch.flags import flag_around, flag_in_call, guard_parts, init_flag
from amp_migrate.reading.switch.handed_amp import amp_given, asked_amp, given_sometimes
from amp_migrate.reading.switch.sure_above import returned_above
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.legacy_scale import settings_of
from amp_migrate.reading.units.static_scale import static_scale
from amp_migrate.reading.units.unit import Blocked, Init, Unit
from amp_migrate.reading.values.there import may_be_none, may_lack

BOUNDS = ("min_loss_scale", "max_loss_scale")


class Homes:
    """The places where one unit's scaler is created."""

    def __init__(self, unit: Unit, name: str, optimizer: str = "") -> None:
        self.unit = unit
        self.optimizer = optimizer  # the one it serves, where each has its own
        self.project: Project = unit.project
        self.base_name = name
        self.homes: list[Home] = []
        self.again: list[Init] = []  # calls that come too late, for an object made with what `initialize` has prepared
        self.keepers: set[ClassInfo] = set()  # the classes whose methods, or makers, give their objects the scaler
        self.names: dict[Scope, str] = {}  # how it is written in the scopes that create it
        self.settled: frozenset[ClassInfo] = frozenset()  # those of them that do because it is created there

    def settle(self, uses: list[tuple[Module, ast.AST]]) -> None:
        """Decide the homes, given every node that will use the scaler.

        Raises Blocked where no place can be seen from all uses.
        """
        for init in self.unit.inits:
            if self.serves(init) and not set_anew(init, self.unit.inits):
                self._settle(init, uses)
        again = [home for home in self.homes if raised_again(self.project, self.homes, home)]
        self.again = [home.init for home in again]
        self.homes = [home for home in self.homes if home not in again]
        self.left_on(self.homes)
        join(self.homes)
        self.settled = frozenset(self.keepers)

    def left_on(self, homes: list[Home]) -> None:
        """Have an object keep what it has where a set-up is passed by, if another of its methods may have set it up."""
        for home in [h for h in self.homes if may_be_on(self.project, homes, h)]:
            home.stays = True
            self._stays(home)

    def serves(self, init: Init) -> bool:
        """Whether the scaler takes the place of this call's loss scale: not where each optimizer brought its own."""
        return self.unit.own_scales.get(self.optimizer, init) is init

    def _settle(self, init: Init, uses: list[tuple[Module, ast.AST]]) -> None:
        scope = init.site.scope
        inside = [(m, n) for m, n in uses if m is init.module and within(m, n, scope)]
        outside = [(m, n) for m, n in uses if not (m is init.module and within(m, n, scope))]
        inside += self._calls_leading_to(init, outside)
        function = self.project.functions.get(scope.node)
        own = [n for n in inside if n[1] is not init.call]
        if self._carried(init) or (outside and self._beside_optimizer(init, inside, outside)):
            return
        if function is not None and outside and not self._on_self(init, outside) and not self._gives_amp(scope):
            if self._moved_to_callers(init, function, outside, used_here=bool(own)):
                return
        kind = "self" if outside and self._on_self(init, outside) else "local"
        if kind == "self":
            cls = self.project.class_of(scope)
            assert cls is not None
            self.keepers.add(cls)
        home = Home(init, kind, scope, init.stmt, init_flag(self.project, init))
        self._climb(home, inside, bool(outside))
        self.homes.append(home)

    def _gives_amp(self, scope: Scope) -> bool:
        """Whether a function hands `amp`, or the handle of `amp.init`, to its callers, which are given the scaler then."""
        if any(s.scope is scope and s.name == AMP and isinstance(s.stmt, ast.Return) for s in self.unit.sites):
            return True
        function = self.project.functions.get(scope.node) if self.unit.handle_slots else None
        back = (n.value for n in function.inside if isinstance(n, ast.Return)) if function is not None else ()
        values = [v for value in back for v in (value.elts if isinstance(value, ast.Tuple) else [value])]
        named = (v for v in values if isinstance(v, (ast.Name, ast.Attribute)))
        return any(self.project.slot(scope.module, v) in self.unit.handle_slots for v in named)

    def _carried(self, init: Init) -> bool:
        """Where the program keeps `amp` on an object (`args.amp = amp`), the scaler is kept there too."""
        # Where the call itself stands, if amp is kept there too: each of two functions that set up keeps its own.
        for site in sorted(self.unit.sites, key=lambda s: s.scope is not init.site.scope):
            stmt = site.stmt
            if site.name != "apex.amp" or site.module is not init.module or not isinstance(stmt, ast.Assign):
                continue
            target = stmt.targets[0]
            if stmt.value is not site.node or not isinstance(target, ast.Attribute):
                continue
            if of_self(site.scope, target):
                continue
            base = site.module.source(init.item(target.value))
            flag = init_flag(self.project, init)
            if site.scope is init.site.scope:  # amp is None where a test does not hold that is around the set-up alone
                around = {*init.module.ancestors(stmt)}
                for test, parts in guard_parts(self.project, init.module, init.stmt):
                    if test not in around:
                        flag = flag.joined(parts) if parts is not None else Flag(site.scope, None)
            home = Home(init, "local", site.scope, stmt, flag, carrier=base)
            self._climb(home, [], outside=True)
            self.homes.append(home)
            self.keepers |= self._keepers(site.module, target)
            return True
        return False

    def _keepers(self, module: Module, target: ast.Attribute) -> set[ClassInfo]:
        """The classes whose instances are given `amp`: by type, or because their methods use the attribute."""
        found = set(self.project.classes_of(module, target.value))
        for loss in self.unit.losses:
            holder = loss.call.func.value if isinstance(loss.call.func, ast.Attribute) else None
            if isinstance(holder, ast.Attribute) and holder.attr == target.attr and isinstance(holder.value, ast.Name):
                scope = loss.module.scope_of(loss.call)
                if holder.value.id == scope.self_name and (cls := self.project.class_of(scope)) is not None:
                    found.add(cls)
        return found

    def keeps(self, cls: ClassInfo | None) -> bool:
        """Whether objects of a class have the scaler as an attribute."""
        return cls is not None and any(cls.shares_instances(keeper) for keeper in self.keepers)

    def _beside_optimizer(
        self, init: Init, inside: list[tuple[Module, ast.AST]], outside: list[tuple[Module, ast.AST]]
    ) -> bool:
        """`trainer.optimizer` is initialized from outside and used by the trainer's methods: it gets `trainer.scaler`."""
        scope = init.site.scope
        for target in (*init.optimizer_targets, *init.optimizers):
            if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
                continue
            owner = scope.lookup(target.value.id)
            if target.value.id == scope.self_name or owner is None:
                continue
            if self._made_with_one(scope, owner.bindings[target.value.id]):
                continue
            classes = self.project.classes_of(init.module, target.value)
            users = {cls for m, n in outside if (cls := self.project.class_of(m.scope_of(n))) is not None}
            if not any(cls.shares_instances(user) for cls in classes for user in users):
                continue
            made: list[tuple[Module, ast.AST]] = [(init.module, b) for b in owner.bindings[target.value.id]]
            base = init.module.source(target.value)
            home = Home(init, "local", scope, init.stmt, init_flag(self.project, init), carrier=base)
            self._climb(home, [*inside, *made], outside=True)
            self.homes.append(home)
            self.keepers.update(self.project.classes_of(init.module, target.value))
            return True
        return False

    def _made_with_one(self, scope: Scope, made: list[ast.AST]) -> bool:
        """Whether an object is made in a function that has a scaler by then: it is handed that, and set up anew keeps it."""
        above = [h for h in self.homes if h.kind == "local" and h.scope is scope and not (h.carrier or h.after)]
        return bool(above) and all(getattr(b, "lineno", 0) > above[0].init.stmt.lineno for b in made)

    def _calls_leading_to(self, init: Init, outside: list[tuple[Module, ast.AST]]) -> list[tuple[Module, ast.AST]]:
        """Calls in the scope of an `initialize` through which the scaler reaches the functions that use it."""

        def here(module: Module, call: ast.AST) -> bool:
            return module is init.module and within(module, call, init.site.scope)

        def around(places: Iterable[tuple[Module, ast.AST]]) -> Iterator[Function]:
            return (f for m, n in places if (f := self.project.function_of(m, n)) is not None)

        def above(function: Function) -> Iterator[Function]:
            return around((m, c) for m, c in self.project.calls.get(function, ()) if not here(m, c))

        functions = reached(around(outside), above)
        return [(m, c) for f in functions for m, c in self.project.calls.get(f, ()) if here(m, c)]

    def _on_self(self, init: Init, outside: list[tuple[Module, ast.AST]]) -> bool:
        """Whether the scaler belongs on `self`: other methods of the class use it."""
        scope = init.site.scope
        cls = self.project.class_of(scope)
        if cls is None or not scope.is_function:
            return False
        for module, node in outside:
            other = self.project.class_of(module.scope_of(node))
            if other is not None and cls.shares_instances(other):
                return True
        return any(of_self(scope, t) for t in (*init.optimizer_targets, *init.optimizers, *init.handles))

    def _climb(self, home: Home, inside: list[tuple[Module, ast.AST]], outside: bool) -> None:
        """Move the creation out of conditions that do not also hold its uses; they become `enabled`."""
        module = home.init.module
        anchor = home.anchor
        guards = dict(guard_parts(self.project, module, anchor))
        pending: list[tuple[ast.stmt, list[ast.If], Flag]] = []
        flag, climbed = home.flag, list(home.climbed)
        latched = False
        loop: ast.stmt | None = None
        holds_all = (home.kind != "self" and not outside) or (home.kind == "local" and home.scope.is_function)
        for parent in module.ancestors(home.anchor):
            if parent in module.scopes:
                break
            if isinstance(parent, LOOP_NODES):
                loop = parent
                break
            if not isinstance(parent, ast.stmt):
                continue
            if holds_all and inside and all(under(module, n, parent) for _, n in inside):
                if not only_asks_for_apex(self.project, module, parent):
                    break
            if isinstance(parent, ast.If):
                if is_main_guard(parent):
                    break
                if runs_once(parent):
                    latched = True
                    continue
                if turns(module, home.scope, parent):
                    break
                parts = guards.get(parent)
                if parts is None:
                    break
                flag = flag.joined(parts)
                if latched:
                    # Creation stays inside `if not initialized:`; the switch around that dissolves.
                    if parent.orelse:
                        break
                    home.flag = flag
                    home.dissolved.append(parent)
                    continue
                climbed.append(parent)
                anchor = parent
                pending.append((anchor, list(climbed), flag))
            elif isinstance(parent, (ast.Try, ast.With)):
                anchor = parent
            else:
                break
        if pending and not latched:
            home.anchor, home.climbed, home.flag = pending[-1]
        if loop is not None:
            self._outside(home, loop, guards, inside)
        self._before_uses(home, [(s.module, s.node) for s in self.unit.sites if s.short == "load_state_dict"])
        if home.climbed and not home.carrier and self._settled_inside(home):
            home.above = home.anchor
            self._stays(home)
        if home.climbed and home.kind == "self" and not home.after:
            held = [n for _, n in inside if n is not home.init.call and under(module, n, home.anchor)]
            home.after = not held and fails_before(self.project, home)

    def _stays(self, home: Home) -> None:
        """Leave the creation in the branch that holds the call."""
        home.own = init_flag(self.project, home.init)
        home.anchor, home.after = home.init.stmt, False
        home.inside, home.climbed = home.climbed or home.inside, []

    def _outside(
        self, home: Home, loop: ast.stmt, guards: dict[ast.If, list[str] | None], inside: list[tuple[Module, ast.AST]]
    ) -> None:
        """Where the scaler is created in a loop, mixed precision is on under the conditions around the loop only."""
        module = home.init.module
        parts: list[str] = []
        for parent in module.ancestors(loop):
            if parent in module.scopes or (inside and all(under(module, n, parent) for _, n in inside)):
                break
            if isinstance(parent, ast.If):
                parts += guards.get(parent) or []
        if parts:
            home.own = home.own or home.flag
            home.flag = home.flag.joined(parts)

    def _settled_inside(self, home: Home) -> bool:
        """Whether what enables the scaler or sets its scale is only known in a branch that its creation would leave."""
        if home.init.spread is not None or found_by(home):
            return True
        init, branches = home.init, home.climbed
        settings = [init.arguments[name] for name in BOUNDS if name in init.arguments]
        if isinstance(scale := static_scale(init), ast.expr):
            settings.append(scale)
        if isinstance(init, LegacyInit):
            settings += settings_of(init.calls, init.choice)
            if any(may_be_none(self.project, init.module, node) for node in settings):
                return True  # which is made a float where it is read
        if any(may_lack(self.project, init.module, node, branches) for node in settings):
            return True
        asked = [ast.parse(part) for part in init_flag(self.project, init).parts or ()]
        return any(only_inside(init, branches, node) for node in asked) or any(
            only_inside(init, branches, node) or changed_inside(init, branches, node) for node in settings
        )

    def _before_uses(self, home: Home, inside: list[tuple[Module, ast.AST]]) -> None:
        """The scaler is created before its first use, also where that stands above `initialize`."""
        module = home.init.module
        block = module.block(home.anchor)
        for stmt in block[: block.index(home.anchor)]:
            if any(m is module and module.scope_of(n) is home.scope and under(module, n, stmt) for m, n in inside):
                home.anchor = stmt
                return

    def _moved_to_callers(
        self, init: Init, function: Function, outside: list[tuple[Module, ast.AST]], *, used_here: bool
    ) -> bool:
        """Where a function prepares and returns the optimizer: create the scaler in its callers, after the call, or
        before it where the function needs the scaler as well."""
        if not self._hands_out(function) or not self.project.calls.get(function):
            return False
        flag = flag_around(self.project, init)
        returned = returned_above(self.project, init.module, init.stmt)
        if returned is None:
            raise _out_of_reach(init, function, flag)
        flag = flag.joined(returned)
        users = set() if used_here else {m.scope_of(n) for m, n in outside}
        self.homes += self._in_callers(init, function, flag, users, asked_amp(self.project, init), busy=frozenset())
        return True

    def _hands_out(self, function: Function) -> bool:
        returned = {Slot(function, "return"), *(Slot(function, f"return#{i}") for i in range(8))}
        return bool(returned & self.unit.optimizer_slots)

    def _in_callers(
        self, init: Init, function: Function, flag: Flag, users: set[Scope], amp: str | None, busy: frozenset[Function]
    ) -> list[Home]:
        """A home at each call of a function; where the caller only hands the optimizer on, at the calls of that one.

        `users`: the scopes that use the scaler; none where the function itself does, and so needs it before the call.
        `amp`: the parameter by which the function is told whether mixed precision is on.
        """
        found: list[Home] = []
        for module, call in self.project.calls.get(function, []):
            stmt, scope = module.statement(call), module.scope_of(call)
            translated = flag_in_call(self.project, flag, function, module, call, scope)
            if translated is None:
                raise _out_of_reach(init, function, flag)
            given = amp_given(self.project, function, module, call, amp) if amp is not None else None
            if isinstance(given, Flag):
                translated = translated.joined([*given.parts]) if given.parts is not None else given
            further = given if isinstance(given, str) else None
            outer = self.project.functions.get(scope.node)
            on_self = stored_on_self(self.unit, module, stmt, scope)
            if users and outer is not None and outer not in busy and not on_self:
                used = any(scope in list(user.chain()) for user in users)
                if not used and self._hands_out(outer) and self.project.calls.get(outer):
                    found += self._in_callers(init, outer, translated, users, further, busy | {function})
                    continue
            beside = [c for m, c in self.project.calls[function] if c is not call and m.statement(c) is stmt]
            if (amp and beside) or (further and outer and given_sometimes(self.project, outer, further)):
                raise _out_of_reach(init, function, flag.joined([f"{amp} is not None"]))
            if not isinstance(stmt, (ast.Assign, ast.AnnAssign)):
                if users and thrown_away(self.project, init, module, stmt, call):
                    continue
                raise _out_of_reach(init, function, flag)
            home = Home(init, "local", scope, stmt, translated, after=bool(users))
            home.idle = bool(users) and without_optimizer(self.project, init, function, module, call)
            if not home.idle and on_self and (cls := self.project.class_of(scope)) is not None:
                home.kind = "self"
                self.keepers.add(cls)
            found.append(home)
        return found

    def target(self, home: Home) -> str:
        """What is assigned where a scaler is created: a variable, or an attribute of `self` or of what carried `amp`."""
        holder = home.carrier or (home.scope.self_name if home.kind == "self" else "")
        return f"{holder}.{self.base_name}" if holder else self.name_in(home.scope)

    def name_in(self, scope: Scope) -> str:
        """The variable name of a scaler created in a scope: `scaler`, unless something else has that name there."""
        if scope not in self.names:
            taken = self.base_name in scope.bindings
            self.names[scope] = f"grad_{self.base_name}" if taken else self.base_name
        return self.names[scope]


def _out_of_reach(init: Init, function: Function, flag: Flag) -> Blocked:
    return Blocked(
        init.module,
        init.call,
        "AMP113",
        "amp.initialize",
        f"{function.name} hands the optimizer to its caller, where it cannot be asked what this set-up hangs on "
        f"({flag.text()}); create the scaler there by hand",
    )
