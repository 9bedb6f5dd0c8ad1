"""Networks that `initialize` was not given, such as a frozen teacher: O1 patched torch for them too."""

from __future__ import annotations

import ast
from functools import cached_property

from amp_migrate.reading.program.definitions import dotted
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.regions.hot import LOSS_NAMES
from amp_migrate.reading.units.unit import Unit

# Methods that a network has and other callables do not.
NETWORK_METHODS = frozenset("eval train parameters named_parameters requires_grad_ load_state_dict".split())


class Companions:
    """The other networks of one unit's programs."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.project: Project = unit.project

    def runs(self, module: Module, node: ast.AST) -> bool:
        """Whether a call runs such a network in mixed precision under Apex."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
            return False
        slot = self.project.slot(module, node.func)
        return slot is not None and slot in self._slots and not self._makes(module, node)

    def _makes(self, module: Module, call: ast.Call) -> bool:
        """Whether a call makes an object rather than run one: `scheduler = scheduler(optimizer, factor=0.5)`."""
        given = (self.project.slot(module, v) for v in (*call.args, *(k.value for k in call.keywords)))
        return any(slot is not None and slot in self.unit.optimizer_slots for slot in given)

    @cached_property
    def _slots(self) -> set[Slot]:
        """Where the networks are kept; none where O2 or O3 cast their own models only."""
        if all(init.literal("opt_level") in ("O0", "O2", "O3") for init in self.unit.inits):
            return set()
        builders = self._builders()
        seeds: set[Slot] = set()
        for module in (m for m in self.unit.modules if m in self.project.modules):
            for call, _ in module.calls:
                if isinstance(call.func, ast.Attribute) and call.func.attr in NETWORK_METHODS:
                    slot = self.project.slot(module, call.func.value)
                    seeds.update([slot] if slot is not None else [])
            for node in module.nodes:
                if (
                    isinstance(node, ast.Assign)
                    and len(node.targets) == 1
                    and self._builds(module, node.value, builders)
                ):
                    slot = self.project.slot(module, node.targets[0])
                    seeds.update([slot] if slot is not None else [])
        found = self.project.reaches(seeds) - self.unit.model_slots - self.unit.optimizer_slots
        return {s for s in found if not LOSS_NAMES.search(s.name)}

    def _builders(self) -> set[str]:
        """What builds the unit's own models: the names of functions and classes."""
        names: set[str] = set()
        for module in self.unit.modules:
            for node in module.nodes:
                if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call):
                    slot = self.project.slot(module, node.targets[0])
                    name = module.qualify(node.value.func) or dotted(node.value.func)
                    if slot in self.unit.model_slots and name and not name.startswith("apex."):
                        names.add(name)
        return names

    def _builds(self, module: Module, value: ast.expr, builders: set[str]) -> bool:
        if not isinstance(value, ast.Call):
            return False
        cls = self.project.find_class(module, value.func)
        name = module.qualify(value.func) or dotted(value.func)
        return (cls is not None and cls.is_module) or name in builders
