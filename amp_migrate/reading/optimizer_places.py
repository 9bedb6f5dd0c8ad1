"""Which of a unit's optimizers an expression stands for, or steps the parameters of."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from amp_migrate.reading.definitions import dotted, elements
from amp_migrate.reading.lookup import Slot
from amp_migrate.reading.module import Module
from amp_migrate.reading.project import Project

if TYPE_CHECKING:
    from amp_migrate.reading.unit import Unit

Keys = frozenset[int]  # which optimizers an expression may stand for
Names = Mapping[str, Keys]  # parameters of the function being walked -> optimizers


class Optimizers:
    """The optimizers given to `initialize`, by number."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.project = unit.project
        self.places = self._find()  # of each: where it may be
        several = len(self.places) > 1  # of a single one every model's parameters are its
        self.models = [self._parameters_of(group) if several else set() for group in self.places]

    def __len__(self) -> int:
        return len(self.places)

    def _find(self) -> list[set[object]]:
        """The places that each optimizer given to `initialize` may be in."""
        groups: list[tuple[set[object], set[object]]] = []  # what was given to `initialize`, where that may be
        for init in self.unit.inits:
            targets = init.optimizer_targets
            for index, node in enumerate(init.optimizers):
                seeds = set(self.project.sources(init.module, node))
                if index < len(targets) and len(targets) == len(init.optimizers):
                    seeds.update(self.project.sources(init.module, targets[index]))
                group: tuple[set[object], set[object]] = set(seeds), set(self.project.reaches(seeds))
                # One optimizer may be initialized in several branches.
                same = [g for g in groups if g[0] & group[1] or g[1] & group[0]]
                groups = [g for g in groups if g not in same]
                groups.append((group[0].union(*(g[0] for g in same)), group[1].union(*(g[1] for g in same))))
        return [places for _, places in groups] or [set()]

    def _parameters_of(self, group: set[object]) -> set[object]:
        """The places that the models which an optimizer was built from may be in."""
        seeds: set[Slot] = set()
        for module in self.unit.reach:
            for node in module.nodes:
                if isinstance(node, ast.Assign) and any(self.project.slot(module, t) in group for t in node.targets):
                    for model in _with_parameters(node.value):
                        seeds.update(self.project.sources(module, model))
        return set(self.project.reaches(seeds))

    def stands_for(self, module: Module, node: ast.expr, names: Names) -> Keys:
        """The optimizers that an expression is, or that step parameters or the model which it is; none if neither."""
        found: set[int] = set()
        for part in (node, *_with_parameters(node)):
            if isinstance(part, ast.Name) and part.id in names:
                found |= names[part.id]
                continue
            slots = set(self.project.sources(module, part))
            places = zip(self.places, self.models, strict=True)
            found |= {i for i, (group, models) in enumerate(places) if slots & group or slots & models}
        return frozenset(found)

    def keys(self, module: Module, node: ast.expr, names: Names) -> Keys:
        """The optimizers that an expression may stand for: all of them where it cannot be told."""
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        slots = set(self.project.sources(module, node))
        found = frozenset(i for i, group in enumerate(self.places) if slots & group)
        return found or frozenset(range(len(self.places)))

    def number(self, module: Module, node: ast.expr) -> int | None:
        """The optimizer that an expression stands for; None where it may be any of several, or something else."""
        slots = set(self.project.sources(module, node))
        found = [i for i, group in enumerate(self.places) if slots & group]
        return found[0] if len(found) == 1 else None

    def of(self, module: Module, optimizers: Iterable[ast.expr], names: Names) -> Keys:
        """The optimizers that several expressions, or lists of them, may stand for; all of them for none."""
        found: frozenset[int] = frozenset()
        for node in optimizers:
            for element in elements(node):
                found |= self.keys(module, element, names)
        return found or frozenset(range(len(self.places)))


def models_given(project: Project, module: Module) -> dict[str, set[str]]:
    """The models whose parameters an assignment asks for, by its targets: `optimizer = SGD(model.parameters())`; see
    `Project.once`."""
    found: dict[str, set[str]] = {}
    for node in module.nodes:
        if isinstance(node, ast.Assign):
            models = {name for model in _with_parameters(node.value) if (name := dotted(model))}
            for target in node.targets if models else ():
                found.setdefault(module.source(target), set()).update(models)
    return found


def _with_parameters(node: ast.AST) -> Iterator[ast.expr]:
    """The models whose parameters an expression asks for."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in ("parameters", "named_parameters"):
            yield part.value
