"""A scaler that the users of a library make: they called `amp.initialize`, and hand optimizer and model over.

A function that takes the optimizer and that nothing in sight calls takes the scaler beside it, a class whose objects keep
the optimizer takes it where they are made: by keyword, and None by default, for callers that know nothing of it.
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.processes import is_script
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.roles import role
from amp_migrate.reading.program.signatures import all_calls, is_public
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.scaler.threads import Thread
from amp_migrate.reading.sites.apex import find_sites
from amp_migrate.reading.switch.flag import Flag
from amp_migrate.reading.units.legacy import is_legacy_call
from amp_migrate.reading.units.unit import Blocked, Init, Unit
from amp_migrate.reading.units.unused_keepers import bases_in_sight
from amp_migrate.reading.values.sources import Sources

HANDED = "scaler_of_the_caller"  # a switch that nothing in the program can read: it is asked of the scaler


class FromUsers(ScalerPlan):
    """A scaler that comes from out of sight. `failure`: why it is not this, where no such entry is found."""

    def __init__(self, unit: Unit, name: str, optimizer: str, failure: Blocked) -> None:
        super().__init__(unit, name, optimizer)
        self.failure = failure
        # With the statement that keeps the optimizer, in a class; the first where none does, for its state alone.
        self.entries: dict[Function, ast.stmt | None] = {}

    @classmethod
    def possible(cls, unit: Unit) -> bool:
        """Whether a unit may be one that others use: it scales in what is no script, and nothing in sight initializes, or nothing
        uses what scales. What keeps the state alone is a library's in a package, and in a file else a part of a program."""
        keeps = unit.unused and not unit.losses  # no more than the state
        modules = {x.module for x in unit.sites} if keeps else {loss.module for loss in unit.losses}
        if not modules or unit.inits or any(role(m) != "product" or (is_script(m) and not keeps) for m in modules):
            return False
        if _initialized(unit) or (unit.unused and not keeps):
            return unit.unused
        return not keeps or all(in_package(unit.project, m) for m in modules)

    def settle(self, uses: list[tuple[Module, ast.AST]]) -> None:
        """Find the functions and classes that users hand the optimizer to.

        Raises Blocked where code that needs the scaler is reached in another way.
        """
        seen: set[Function] = set()
        for module, node in uses:
            self._enter(self.project.function_of(module, node), seen)

    def _enter(self, function: Function | None, seen: set[Function]) -> None:
        if function is None:
            raise self.failure
        if function in seen:
            return
        seen.add(function)
        if (around := self.project.functions.get(function.scope.outermost.node)) not in (None, function):
            self._enter(around, seen)  # which hands it out as a value, or calls it
            return
        if function.cls is not None and not self._by_method(function, function.cls):
            self._by_class(function.cls)
            return
        calls = self.project.calls.get(function, [])
        for module, call in calls:
            self._enter(self.project.function_of(module, call), seen)
        if calls:
            return
        taken = not self.unit.losses or self._parameter(function) is not None
        if function.node.decorator_list or self.project.once(Sources).is_value(function) or not taken:
            raise self.failure
        self.entries[function] = None
        self._home(function, "local", function.node.body[0])

    def _by_method(self, function: Function, cls: ClassInfo) -> bool:
        """Whether whoever calls a method gives it the optimizer, which its object does not keep."""
        init = cls.method("__init__")
        if self.keeps(cls) or (init is not None and self._keeping(init) is not None):
            return False
        family = cls.family.descendants()
        alone = all(c is cls or function.name not in c.methods for c in family) and all(map(bases_in_sight, family))
        return alone and not function.name.startswith("__") and self._parameter(function) is not None

    def _by_class(self, cls: ClassInfo) -> None:
        """Objects keep the scaler beside the optimizer that they are made with."""
        if self.keeps(cls):
            return
        init = cls.method("__init__")
        cls = init.cls if init is not None and init.cls is not None else cls  # the base that keeps it
        below = [c for c in cls.family.descendants() if c is not cls and cls in c.ancestry()]
        stmt = self._keeping(init) if init is not None else None
        if init is not None and not self.unit.losses:  # whatever else its object keeps
            stmt = stmt or init.scope.first
        if init is None or stmt is None or any("__init__" in c.methods for c in below):
            raise self.failure
        self.keepers.add(cls)
        self.entries[init] = stmt
        self._home(init, "self", stmt)

    def _keeping(self, init: Function) -> ast.stmt | None:
        """The statement of `__init__` that keeps an optimizer it is given, or makes: `self.optimizer = optimizer`."""
        for stmt in init.node.body:
            if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Attribute):
                given = isinstance(stmt.value, ast.Name) and stmt.value.id in init.scope.params
                slots = {self.project.slot(init.module, stmt.targets[0])}
                slots |= {Slot(init.scope, stmt.value.id)} if given and isinstance(stmt.value, ast.Name) else set()
                if (given or isinstance(stmt.value, ast.Call)) and not slots.isdisjoint(self.unit.optimizer_slots):
                    return stmt
        return None

    def _parameter(self, function: Function) -> str | None:
        """The parameter that a function takes an optimizer in."""
        names = (p for p in function.positional if Slot(function.scope, p) in self.unit.optimizer_slots)
        return next(names, None)

    def _home(self, function: Function, kind: str, anchor: ast.stmt) -> None:
        site = self.unit.losses[0].site if self.unit.losses else self.unit.sites[0]
        assert site.call is not None
        init = Init(self.project, site, site.call, {}, [], [])
        self.homes.append(Home(init, kind, function.scope, anchor, Flag(function.scope, (HANDED,))))
        self.named |= {function.scope, *([function.cls.family] if kind == "self" and function.cls else [])}

    def stays_open(self, thread: Thread) -> bool:
        calls = all_calls(self.project, thread.function)
        plain = not (thread.apart or thread.forwards or thread.replaces)
        bound = any(self.project.partial_of(module, call) for module, call in calls)
        return plain and not bound and bool(self.unit.losses) and is_public(self.project, thread.function)

    def as_seen(self, text: str, home: Scope, there: Scope, at: ast.stmt | None = None) -> str | None:
        return None if text == HANDED else super().as_seen(text, home, there, at)

    def governing(self, scope: Scope) -> list[Home]:
        return self.homes[:1]


def in_package(project: Project, module: Module) -> bool:
    """Whether a file may be a library's: else it is rather a part of a program."""
    return module.name.rpartition(".")[0] in project.by_name


def _initialized(unit: Unit) -> bool:
    """Whether any file at hand sets mixed precision up, for whatever unit."""
    project = unit.project
    sites = (s for m in project.modules if project.may_name_apex(m) for s in find_sites(project, m))
    return any(s.name == "apex.amp.initialize" or is_legacy_call(s) for s in sites)
