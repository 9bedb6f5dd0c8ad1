"""Variables that hold `apex.amp` itself: `mixed = apex.amp`, and parameters that receive it: `train(model, amp)`; and those
that hold a function of it to call: `scaled = amp.scale_loss`."""

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
# Functions that objects keep to call: `self.scale_loss = amp.scale_loss`.
KEPT = tuple(
    f"apex.amp.{name}" for name in ("initialize", "scale_loss", "master_params", "state_dict", "load_state_dict")
)


def only_kept(project: Project, attribute: str, name: str) -> bool:
    """Whether an attribute is nothing but a function of Apex's, or None, wherever it is assigned, and is only called."""
    if project.methods_named.get(attribute):
        return False
    for module in (m for m in project.modules if attribute in m.text):
        for node in (n for n in module.of(ast.Attribute) if n.attr == attribute and module.qualify(n) is None):
            parent = module.parents.get(node)
            if isinstance(node.ctx, ast.Load):
                if not (isinstance(parent, ast.Call) and parent.func is node):
                    return False
            elif not isinstance(parent, ast.Assign) or not (
                _is_none(parent.value) or module.qualify(parent.value) == name
            ):
                return False
    return True


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


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
    """Names that are given one once, where attributes of it are all that is ever asked; or a function, which is only called."""
    for module in project.modules:
        for node in module.of(ast.Assign) if "apex" in module.text else ():
            target = node.targets[0] if len(node.targets) == 1 else None
            if not isinstance(target, ast.Name):
                continue
            name = module.qualify(node.value)
            owner = module.scope_of(target).lookup(target.id)
            if owner is None or name is None or not _only_read(project, module, owner, target.id):
                continue
            uses = [(use, module.parents.get(use)) for use in module.loads.get(target.id, ())]
            asked = name in MODULES and all(isinstance(parent, ast.Attribute) for _, parent in uses)
            called = name in KEPT and all(isinstance(parent, ast.Call) and parent.func is use for use, parent in uses)
            if asked or called:
                yield Slot(owner, target.id), name


def _only_read(project: Project, module: Module, owner: Scope, name: str) -> bool:
    """Whether a name is given its one value where it stands, and no other file reads it."""
    if owner.is_class or len(owner.bindings.get(name, ())) != 1:
        return False
    return not owner.is_module or not any(project.handed_on.readers(module, name))
