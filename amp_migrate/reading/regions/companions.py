"""Networks that `initialize` was not given, such as a frozen teacher: O1 patched torch for them too."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property

from amp_migrate.reading.program.definitions import ClassInfo, dotted
from amp_migrate.reading.program.handed_back import same_object
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.program.view import Node
from amp_migrate.reading.regions.compiled import compiled
from amp_migrate.reading.regions.forwards import Forwards
from amp_migrate.reading.regions.hot import is_loss
from amp_migrate.reading.regions.no_forwards import NOT_FORWARD
from amp_migrate.reading.regions.parts import only_own
from amp_migrate.reading.units.unit import Unit
from amp_migrate.reading.values.operations import LOSS_NAMES

# Methods that a network has and other callables do not.
NETWORK_METHODS = frozenset("eval train parameters named_parameters requires_grad_".split())
# What else has a state: schedulers, counters, what keeps the best checkpoint.
STATE_METHODS = frozenset(("load_state_dict",))


class Companions:
    """The other networks of one unit's programs."""

    def __init__(self, unit: Unit, forwards: Forwards) -> None:
        self.unit = unit
        self.project: Project = unit.project
        self.forwards = forwards

    def runs(self, module: Module, node: ast.AST) -> bool:
        """Whether a call runs such a network in mixed precision under Apex."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
            return False
        slot = self.project.slot(module, node.func)
        if slot is not None and self._holds(slot):
            return not self._makes(module, node) and self._gives(module, node, slot)
        return isinstance(node.func, ast.Attribute) and self._runs_method(module, node, node.func)

    def uncast(self, module: Module, nodes: Iterable[Node], forwards: set[Node]) -> set[Node]:
        """The statements that only run TorchScript which no set-up was given, and compute no loss of it."""
        found = self.project.once(compiled) - self.unit.model_slots
        plain = (n for n in nodes if found and n not in forwards and not any(map(is_loss, n.calls)))
        return {n for n in plain if any(self.project.slot(module, _called(a)) in found for a in n.calls)}

    def _runs_method(self, module: Module, call: ast.Call, func: ast.Attribute) -> bool:
        """Whether a call runs parts of such a network by another method than its own call: `teacher.embed(x)`."""
        slot = self.project.slot(module, func.value) if isinstance(func.value, (ast.Name, ast.Attribute)) else None
        if slot is None or not self._holds(slot) or isinstance(module.parents.get(call), ast.Expr):
            return False
        methods = self.project.resolved.get(call, [])
        return func.attr == "forward" or (
            bool(methods)
            and func.attr not in NOT_FORWARD
            and all(f.cls is not None and f.cls.is_module and self.forwards.computes(f) for f in methods)
        )

    def _gives(self, module: Module, call: ast.Call, slot: Slot) -> bool:
        """Whether a call can be that of a network, whose forward gives something: not a statement of its own that is handed
        a model, or runs what has nothing but a state in common with networks; nor an object that is seen to be none."""
        surely = slot in self._surely
        if isinstance(module.parents.get(call), ast.Expr):
            return surely and self.unit.model_slots.isdisjoint(self._given(module, call))
        classes = self.project.classes_of(module, call.func)
        return not classes or any(c.is_module or (surely and not _holds_nothing(c)) for c in classes)

    def _makes(self, module: Module, call: ast.Call) -> bool:
        """Whether a call makes an object rather than run one: `scheduler = scheduler(optimizer, factor=0.5)`."""
        return not self.unit.optimizer_slots.isdisjoint(self._given(module, call))

    def _given(self, module: Module, call: ast.Call) -> set[Slot]:
        return self.project.slots(module, (*call.args, *(k.value for k in call.keywords)))

    def _holds(self, slot: Slot) -> bool:
        """Whether such a network is kept in a variable; none is where O2 or O3 cast their own models only."""
        if self._only_own or slot in self.unit.model_slots or slot in self.unit.optimizer_slots:
            return False
        known = slot in self._networks or slot in self._built_alike
        return known and slot not in self.project.once(compiled) and not LOSS_NAMES.search(slot.name)

    @cached_property
    def _only_own(self) -> bool:
        return only_own(self.unit)

    @cached_property
    def _networks(self) -> set[Slot]:
        modules = [m for m in self.unit.modules if m in self.project.functions_of]
        return self.project.once(_networks, *modules) | self.project.once(_stated, *modules)

    @cached_property
    def _surely(self) -> set[Slot]:
        """Those that do more than load a state, or are built as the unit's own models are."""
        modules = (m for m in self.unit.modules if m in self.project.functions_of)
        return self.project.once(_networks, *modules) | self._built_alike

    @cached_property
    def _built_alike(self) -> set[Slot]:
        """Where is kept what is made by that which builds the unit's own models."""
        builders: set[str] = set()
        for module in self.unit.modules:
            for node in self.project.once(Occurrences, module).assigned_to(self.unit.model_slots):
                name = _built_by(module, node)
                if name and not name.startswith("apex."):
                    builders.add(name)
        seeds: set[Slot] = set()
        for module in self.unit.modules if builders else ():
            built = self.project.once(_built, module)
            seeds.update(slot for name in builders for slot in built.get(name, ()))
        return self.project.reaches(seeds)


def _called(call: ast.Call) -> ast.expr:
    """What a call runs: of `net.forward(x)` the network."""
    forward = isinstance(call.func, ast.Attribute) and call.func.attr == "forward"
    return call.func.value if forward else call.func  # type: ignore[attr-defined]


def _holds_nothing(cls: ClassInfo) -> bool:
    """Whether a call of an object runs only what its class defines: a scheduler with an `eval` of its own, no wrapper."""
    above = list(cls.ancestry())
    if any(name != "object" for c in above for name in c.base_names if name not in {a.name for a in above}):
        return False
    defined = {name for c in above for name in c.methods}
    called = [
        dotted(n.func) or "" for c in above for f in c.methods.values() for n in walk(f.node) if isinstance(n, ast.Call)
    ]
    return all(
        name.partition(".")[2] in defined for name in called if name.startswith("self.") and name.count(".") == 1
    )


def _networks(project: Project, *modules: Module) -> set[Slot]:
    """Where some files keep what has methods of a network, or is made by a class of networks; see `Project.once`."""
    seeds = _having(project, modules, NETWORK_METHODS)
    for module in modules:
        for node in project.once(Occurrences, module).assignments:
            made = same_object(node.value)
            if len(node.targets) == 1 and isinstance(made, ast.Call):
                cls = project.find_class(module, made.func)
                slot = project.slot(module, node.targets[0]) if cls is not None and cls.is_module else None
                if slot is not None:
                    seeds.add(slot)
    return project.reaches(seeds)


def _stated(project: Project, *modules: Module) -> set[Slot]:
    """Where some files keep what loads a state; see `Project.once`."""
    return project.reaches(_having(project, modules, STATE_METHODS))


def _having(project: Project, modules: Iterable[Module], methods: frozenset[str]) -> set[Slot]:
    """The variables of some files on which one of some methods is called."""
    called = ((m, f.value) for m in modules for name in methods for _, f in m.method_calls.get(name, ()))
    return {slot for module, receiver in called for slot in project.slots(module, [receiver])}


def _built(project: Project, module: Module) -> dict[str, list[Slot]]:
    """The variables of a file that hold what a call returned, by the name of what is called; see `Project.once`."""
    found: dict[str, list[Slot]] = {}
    for node in project.once(Occurrences, module).assignments:
        name = _built_by(module, node)
        slot = project.slot(module, node.targets[0]) if name else None
        if name and slot is not None:
            found.setdefault(name, []).append(slot)
    return found


def _built_by(module: Module, node: ast.Assign) -> str | None:
    """The name of what is called for the value of a plain assignment."""
    made = same_object(node.value)
    if len(node.targets) != 1 or not isinstance(made, ast.Call):
        return None
    return module.qualify(made.func) or dotted(made.func)
