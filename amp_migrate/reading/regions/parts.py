"""Parts of a unit's models: the networks that the classes of these keep in fields, wherever they are handed on to; and the
networks that `initialize` was given in parts."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import chain

from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.given_values import alternatives
from amp_migrate.reading.program.handed_back import same_object
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import methods_called, reached
from amp_migrate.reading.units.telling_names import holds_data
from amp_migrate.reading.units.unit import Unit
from amp_migrate.reading.values.operations import HALF_LAYERS, LOSS_NAMES

CONTAINERS = frozenset("Sequential ModuleList ModuleDict LSTM GRU RNN MultiheadAttention".split())


def part_slots(unit: Unit) -> set[Slot]:
    """Where parts of the models may be kept: none in what only runs before `initialize`, or in another process."""
    project = unit.project
    found = (c for i in unit.inits for node in i.models for c in project.classes_of(i.module, node))
    fields: dict[ClassInfo, dict[Slot, list[ClassInfo]]] = {}

    def kept(cls: ClassInfo) -> Iterable[ClassInfo]:
        fields[cls] = _fields(project, cls)
        return chain.from_iterable(fields[cls].values())

    alone = only_own(unit)
    classes = reached((c for c in found if c.is_module), kept)
    seeds = {s for c in [*classes] if not (alone and _made_elsewhere(project, c)) for s in fields[c]}
    early = {f.scope for f in unit.early}
    return {s for s in project.reaches(seeds) if s.holder not in early and not holds_data(s.name)}


def whole_slots(unit: Unit) -> set[Slot]:
    """Where a network may be kept of which `initialize` was given parts alone: `world` of `[world.encoder, world.head]`."""
    project = unit.project
    given = [(i.module, node.value) for i in unit.inits for node in i.models if isinstance(node, ast.Attribute)]
    seeds: set[Slot] = set()
    for module, whole in given:
        kinds = project.classes_of(module, whole)
        if kinds and all(c.is_module for c in kinds) and not module.is_self(whole):
            seeds |= project.slots(module, [whole])
    return project.reaches(seeds)


def only_own(unit: Unit) -> bool:
    """Whether O2 or O3 cast the unit's own models only."""
    # An FP16_Optimizer goes with the weights that are made half, and patches nothing.
    return all(i.brings_scale or i.only("opt_level") in ("O0", "O2", "O3") for i in unit.inits)


def _made_elsewhere(project: Project, cls: ClassInfo) -> bool:
    """Whether objects of a class are made in several places: another may be a network that was not cast."""
    made = cls.method("__init__")
    return made is None or len(project.calls.get(made, ())) > 1


def _fields(project: Project, cls: ClassInfo) -> dict[Slot, list[ClassInfo]]:
    """The fields of a class that hold networks, with the program's classes of these."""
    found: dict[Slot, list[ClassInfo]] = {}
    functions = [f for c in cls.ancestry() for f in c.methods.values()]
    run = methods_called(f.node for f in functions)
    for function in functions:
        for stmt in function.inside:
            if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
                continue
            target = stmt.targets[0]
            if not isinstance(target, ast.Attribute) or not function.module.is_self(target.value):
                continue
            slot = project.slot(function.module, target)
            if slot is None or LOSS_NAMES.search(slot.name):
                continue
            for made in _made(stmt.value):
                kinds = project.classes_of(function.module, made)
                if kinds:
                    if all(c.is_module for c in kinds):
                        found.setdefault(slot, []).extend(kinds)
                    continue
                package, _, name = (function.module.qualify(made.func) or "").rpartition(".")
                of_torch = package.startswith("torch")
                if name in HALF_LAYERS | CONTAINERS if of_torch else package and slot.name in run:
                    found.setdefault(slot, [])
    return found


def _made(value: ast.expr) -> Iterator[ast.Call]:
    """The calls that may make what is assigned."""
    for candidate in alternatives(value):
        made = same_object(candidate)
        if isinstance(made, ast.Call):
            yield made
