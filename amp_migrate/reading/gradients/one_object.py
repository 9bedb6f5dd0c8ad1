"""What the fields of one object are while one of its methods runs: of two trainers each has an optimizer of its own, and
`self.optimizer` is the same one in all that one call of `fit` does, whichever that is."""

from __future__ import annotations

import ast
from itertools import product

from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.units.held import stores
from amp_migrate.reading.units.places import Keys, Names, holds_several
from amp_migrate.reading.units.unit import Unit

OF = "?"  # before the name of what is one of several in a run: all that it may be
_MOST = 16  # ways in which the fields of an object may be given, which are walked one by one


class OneObject:
    """Tells the runs of a method apart by what the fields of its object may hold."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.project = unit.project
        self._fields: dict[Function, dict[str, Keys]] = {}

    def runs(self, function: Function, given: Names) -> list[dict[str, Keys]]:
        """What a method is walked with: once for each optimizer that a field of its object may hold, where nothing that it
        calls gives the field another one."""
        if len(self.unit.optimizers) < 2 or function.scope.self_name is None or function.name == "__init__":
            return [{**given}]
        own = function.scope.self_name
        vague = {f"{own}.{name}": keys for name, keys in self.fields(function).items()}
        vague = {name: keys for name, keys in vague.items() if name not in given}
        ways = product(*(sorted(keys) for keys in vague.values()))
        given = {**given, **{OF + name: keys for name, keys in vague.items()}}
        found = [
            {**given, **{n: frozenset((key,)) for n, key in zip(vague, way, strict=True)}}
            for way, _ in zip(ways, range(_MOST + 1), strict=False)
        ]
        return found if len(found) <= _MOST else [{**given}]

    def fields(self, function: Function) -> dict[str, Keys]:
        """The fields that hold one optimizer of several while a method runs, with those that they may hold."""
        if function not in self._fields:
            found = self._held(function.cls) if function.cls is not None else {}
            self._fields[function] = {
                name: keys for name, (keys, renewing) in found.items() if function not in renewing
            }
        return self._fields[function]

    def _held(self, cls: ClassInfo) -> dict[str, tuple[Keys, set[Function]]]:
        """The same of a class and its bases and heirs, each with the functions in whose run the field may become another."""
        optimizers, project = self.unit.optimizers, self.project
        slots: dict[str, set[Slot]] = {}
        for slot in self.unit.optimizer_slots:
            if isinstance(slot.holder, ClassInfo) and slot.holder.shares_instances(cls):
                slots.setdefault(slot.name, set()).add(slot)
        found: dict[str, tuple[Keys, set[Function]]] = {}
        for name, own in slots.items():
            reads = [
                (m, n)
                for m in self.unit.reach
                for n in m.named.get(name, ())
                if isinstance(n, ast.Attribute) and project.slot(m, n) in own
            ]
            keys = frozenset[int]().union(*(optimizers.keys(m, n, {}) for m, n in reads))
            if len(keys) < 2 or not keys <= optimizers.single or any(holds_several(project, m, n) for m, n in reads):
                continue
            given = [(m, n) for m, n in stores(project, name) if project.slot(m, n) in {*own, None}]
            ways = [project.way(m, n) for m, n in given if not self._set_up(m, n)]
            ways = [way for way in ways if way[1] is None or way[1].name != "__init__"]  # of another object, by then
            found[name] = keys, {f for _, f in project.ways_to(ways) if f is not None}
        return found

    def _set_up(self, module: Module, node: ast.Attribute) -> bool:
        """Whether a field is given what `initialize` made of what it held: `self.model, self.optimizer =
        amp.initialize(self.model, self.optimizer)`."""
        inits = (i for i in self.unit.inits if i.module is module and node in i.optimizer_targets)
        own = ast.unparse(node)
        return any(own == ast.unparse(o) for i in inits for o in i.optimizers)
