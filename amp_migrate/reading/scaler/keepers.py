"""Which objects keep the GradScaler of a unit in a field: beside the optimizer, or where they kept `amp`."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.given_values import alternatives
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.scaler.amp_kept import AMP, Kept, brings_amp, holds_amp, kept_in
from amp_migrate.reading.scaler.threads import Threads
from amp_migrate.reading.units.unit import Unit


class Keepers(Threads):
    """The fields that hold the scaler of one unit, and what they are given it from."""

    def __init__(self, unit: Unit, name: str, optimizer: str) -> None:
        super().__init__(unit, name, optimizer)
        self.attributes: dict[ast.stmt, tuple[Module, str, str]] = {}  # assignment -> (module, target, value)
        # Where an object keeps amp: what it keeps then, and from where.
        self.in_place: dict[ast.expr, tuple[str, str]] = {}
        self.storing: set[Function] = set()  # the methods that keep it beside an optimizer that they are given
        self.methods: list[Scope] = []  # the methods that read it from `self`
        self.named: set[Scope | ClassInfo] = set()  # the scopes and classes of homes whose variable is used
        self.alone = True  # the only scaler of its unit

    def kept_by(self, cls: ClassInfo) -> bool:
        """Whether objects of a class have the scaler, or are given it with what they keep."""
        return self.keeps(cls) or self._carries(cls)

    def _of_object(self, cls: ClassInfo, scope: Scope) -> str:
        """The scaler of the object of a method."""
        self.named.add(cls.family)
        self.methods.append(scope)
        return f"{scope.self_name}.{self.base_name}"

    def _carries(self, cls: ClassInfo) -> bool:
        """Whether objects of a class keep the unit's optimizer in an attribute: then they keep the scaler beside it."""
        family = cls.family
        carried = {s.name for s in self.unit.optimizer_slots if s.holder is family}
        amp = self._fields_held(cls) if not self.optional else frozenset()
        if not carried and not amp:
            return False
        stored = [*kept_in(self.project, cls)]
        kept = [k for k in stored if k.target.attr in amp and self._brings(k)]
        found = [k for k in stored if k not in kept and k.target.attr in carried and self._takes_optimizer(k)]
        found = [k for k in found if all(k.method is not other.method for other in kept)]
        self.keepers |= {k.method.cls for k in (*kept, *found) if k.method.cls is not None}
        self.storing |= {k.method for k in (*kept, *found)}
        for each in kept:  # where amp was, beside whatever else
            self.in_place[each.target] = self._named_in(each), self._reach_outside(each.module, each.method, each.stmt)
        for each in found:
            if any(_on_the_way(k.module, k.stmt, each.stmt) for k in found if k.method is each.method):
                continue  # beside one optimizer of several
            value = self._reach_outside(each.module, each.method, each.stmt)
            self.attributes[each.stmt] = (each.module, self._named_in(each), value)
        return bool(kept or found)

    def place_of(self, module: Module, target: ast.expr) -> tuple[str, str] | None:
        """Where a method keeps amp, or the handle, of which its object was given one: what it keeps then, and from where."""
        cls = self.project.class_of(module.scope_of(target))
        if cls is None or not isinstance(target, ast.Attribute) or not module.is_self(target.value):
            return None
        if target.attr not in self._fields_held(cls) or not self.alone:
            return None
        return self.in_place.get(target) if self.kept_by(cls) else None

    def _fields_held(self, cls: ClassInfo) -> frozenset[str]:
        """The fields in which objects of a class keep `apex.amp`, or the handle of `amp.init`."""
        return holds_amp(self.project, cls) | {s.name for s in self.unit.handle_slots if s.holder is cls.family}

    def _brings(self, kept: Kept) -> bool:
        slot = self.project.slot(kept.module, kept.value) if isinstance(kept.value, (ast.Name, ast.Attribute)) else None
        if slot in self.unit.handle_slots:
            return True
        # What a method imports itself may be kept long before anything is set up.
        in_sight = any(h.kind == "local" and h.scope in [*kept.method.scope.chain()] for h in self.homes)
        own = any(kept.module.qualify(each) == AMP for each in alternatives(kept.value))
        return brings_amp(self.project, kept.module, kept.value) and (in_sight or not own)

    def _takes_optimizer(self, kept: Kept) -> bool:
        """Whether what a method keeps is an optimizer that its object had not."""
        sources = set(self.project.sources(kept.module, kept.value))
        own = any(isinstance(s.holder, ClassInfo) and s.holder is kept.family for s in sources)
        return bool(sources & self.unit.optimizer_slots) and not own and len(kept.stmt.targets) == 1

    def _named_in(self, kept: Kept) -> str:
        return f"{kept.module.source(kept.target.value)}.{self.base_name}"

    def _reach_outside(self, module: Module, method: Function, stmt: ast.stmt) -> str:
        """The scaler inside the method that stores the optimizer, without going through `self`."""
        for home in self.homes:
            if home.kind == "local" and home.scope in list(method.scope.chain()):
                if self.amp_parameter(method) is None:
                    return self._local(home.scope)
        return self._thread(method, stmt)

    def _local(self, scope: Scope) -> str:
        """The variable of a home in a scope: from here on it is needed."""
        self.named.add(scope)
        return self.name_in(scope)


def _on_the_way(module: Module, earlier: ast.stmt, stmt: ast.stmt) -> bool:
    """Whether whatever comes to a statement has run an earlier one of the same function."""
    block = module.block(earlier)
    return module.inside_of(stmt, block[block.index(earlier) + 1 :])
