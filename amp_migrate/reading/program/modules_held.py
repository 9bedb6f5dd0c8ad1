"""Variables that hold `apex.amp` itself: `mixed = apex.amp`, and parameters that receive it: `train(model, amp)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.scope import Scope

if TYPE_CHECKING:
    from amp_migrate.reading.program.project import Project

MODULES = ("apex.amp", "apex")


def modules_held(project: Project) -> dict[Slot, str]:
    """The Apex module that each of these variables holds, by whatever other variables it came there."""
    held = dict(_named(project))
    grown = True
    while grown:
        grown = False
        for function, sites in project.calls.items():
            for module, call in sites:
                for parameter, value in project.arguments(function, call):
                    slot = Slot(function.scope, parameter)
                    if slot in held or not isinstance(value, (ast.Name, ast.Attribute)):
                        continue
                    name = project.qualify(module, value)
                    if name is None and isinstance(value, ast.Name):
                        name = held.get(Slot(module.scope_of(value).lookup(value.id), value.id))
                    if name in MODULES:
                        held[slot] = name
                        grown = True
    return held


def _named(project: Project) -> Iterator[tuple[Slot, str]]:
    """Names that are given one once, where attributes of it are all that is ever asked."""
    for module in project.modules:
        for node in module.of(ast.Assign) if "apex" in module.text else ():
            target = node.targets[0] if len(node.targets) == 1 else None
            if not isinstance(target, ast.Name):
                continue
            name = module.qualify(node.value)
            owner = module.scope_of(target).lookup(target.id)
            if name in MODULES and owner is not None and _only_asked(project, module, owner, target.id):
                yield Slot(owner, target.id), name


def _only_asked(project: Project, module: Module, owner: Scope, name: str) -> bool:
    if owner.is_class or len(owner.bindings.get(name, ())) != 1:
        return False
    if not all(isinstance(module.parents.get(use), ast.Attribute) for use in module.loads.get(name, ())):
        return False
    return not owner.is_module or not any(project.handed_on.readers(module, name))
