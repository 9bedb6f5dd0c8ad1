"""Fields that hold `apex.amp` itself, by their name, and variables that hold a function of it to call: `scaled = amp.scale_loss`.

`modules_passed.py` follows the module itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import ClassInfo, is_none
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import STAR_EXPORTS, Module
from amp_migrate.reading.program.scope import Scope

if TYPE_CHECKING:
    from amp_migrate.reading.program.project import Project

MODULES = ("apex.amp", "apex")
# Functions that objects keep to call: `self.scale_loss = amp.scale_loss`.
KEPT = tuple(
    f"apex.amp.{name}" for name in ("initialize", "scale_loss", "master_params", "state_dict", "load_state_dict")
)


_OF_AMP = STAR_EXPORTS["apex.amp"] | {"lists", "handle", "frontend", "scaler"}


def only_kept(project: Project, attribute: str, name: str) -> bool:
    """Whether an attribute is nothing but a function of Apex's, or None, wherever it is assigned, and is only called, or asked
    whether it is there."""
    if project.methods_named.get(attribute):
        return False
    for module in (m for m in project.modules if attribute in m.text):
        for node in (n for n in module.of(ast.Attribute) if n.attr == attribute and module.qualify(n) is None):
            parent = module.parents.get(node)
            if isinstance(node.ctx, ast.Load):
                if not (isinstance(parent, ast.Call) and parent.func is node) and not asks(module, node):
                    return False
            elif not isinstance(parent, ast.Assign) or not (
                is_none(parent.value) or module.qualify(parent.value) == name
            ):
                return False
    return True


def asks(module: Module, node: ast.expr) -> bool:
    """Whether a variable is only asked whether it holds something: `self.scale is not None`, `if self.scale:`."""
    outer = module.parents.get(node)
    while isinstance(outer, ast.BoolOp) or (isinstance(outer, ast.UnaryOp) and isinstance(outer.op, ast.Not)):
        node, outer = outer, module.parents.get(outer)
    if isinstance(outer, ast.Compare):
        return len(outer.ops) == 1 and isinstance(outer.ops[0], (ast.Is, ast.IsNot)) and is_none(outer.comparators[0])
    return isinstance(outer, (ast.If, ast.IfExp)) and outer.test is node


@dataclass(frozen=True)
class _Store:
    """One statement that sets an attribute which may hold the module: of what, as written and by its classes; and whether
    to the module."""

    receiver: str
    classes: frozenset[ClassInfo]
    module: bool
    value: ast.expr


def is_option(project: Project, module: Module, node: ast.Attribute) -> bool:
    """Whether an attribute of the name under which some object keeps the module is another object's: `args.amp`, which says
    whether to use it, beside `self.amp = amp`."""
    stores = project.once(_stores).get(node.attr, [])
    given = [s for s in stores if s.module]
    classes = _one_object(project, module, node.value)
    if classes and all(s.classes and classes.isdisjoint(s.classes) for s in given):
        return True
    receiver = ast.unparse(node.value)
    if classes or any(receiver == s.receiver for s in given):
        return False
    if any(receiver == s.receiver and not is_none(s.value) for s in stores):
        return True
    owner = module.scope_of(node)
    uses = [n for n in module.of(ast.Attribute) if n.attr == node.attr and ast.unparse(n.value) == receiver]
    asked = [module.parents.get(n) for n in uses if module.scope_of(n) is owner]
    return not any(isinstance(a, ast.Attribute) and _is_asked_of_amp(project, node.attr, a.attr) for a in asked)


def only_given(project: Project, module: Module, receiver: ast.expr, attribute: str) -> bool:
    """Whether an attribute of what an expression holds is given the module, and never anything else."""
    classes = _one_object(project, module, receiver)
    own = [s for s in project.once(_stores).get(attribute, []) if not classes.isdisjoint(s.classes)]
    bound = any(attribute in cls.scope.bindings for cls in classes)  # there in every run
    return bool(own) and not bound and all(s.module for s in own)


def _one_object(project: Project, module: Module, receiver: ast.expr) -> set[ClassInfo]:
    """The classes that an object has of which one is that of an expression: those below it, and all their bases."""
    below = [d for cls in project.classes_of(module, receiver) for d in cls.descendants()]
    return {base for cls in below for base in cls.ancestry()}


def _is_asked_of_amp(project: Project, attribute: str, name: str) -> bool:
    return project.module_attributes[attribute] != "apex.amp" or name in _OF_AMP or name.startswith("_")


def _stores(project: Project) -> dict[str, list[_Store]]:
    found: dict[str, list[_Store]] = {}
    for module in project.modules:
        for node in module.of(ast.Assign):
            holds = module.qualify(node.value) in (*MODULES, *KEPT)
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr in project.module_attributes:
                    classes = frozenset(project.classes_of(module, target.value))
                    store = _Store(ast.unparse(target.value), classes, holds, node.value)
                    found.setdefault(target.attr, []).append(store)
                elif isinstance(target, ast.Name) and target.id in project.module_attributes:
                    cls = project.classes.get(module.scope_of(target).node)
                    if cls is not None:
                        found.setdefault(target.id, []).append(_Store(cls.name, frozenset({cls}), holds, node.value))
    return found


def functions_held(project: Project) -> Iterator[tuple[Slot, str]]:
    """Names that are given a function of Apex's once, and are only called."""
    for module in project.modules:
        for node in module.of(ast.Assign) if "apex" in module.text else ():
            target = node.targets[0] if len(node.targets) == 1 else None
            name = module.qualify(node.value) if isinstance(target, ast.Name) else None
            if not isinstance(target, ast.Name) or name not in KEPT:
                continue
            owner = module.scope_of(target).lookup(target.id)
            if owner is None or name is None or not _only_read(project, module, owner, target.id):
                continue
            parents = [(use, module.parents.get(use)) for use in module.loads.get(target.id, ())]
            if all(isinstance(parent, ast.Call) and parent.func is use for use, parent in parents):
                yield Slot(owner, target.id), name


def _only_read(project: Project, module: Module, owner: Scope, name: str) -> bool:
    """Whether a name is given its one value where it stands, and no other file reads it."""
    if owner.is_class or len(owner.bindings.get(name, ())) != 1:
        return False
    return not owner.is_module or not any(project.handed_on.readers(module, name))
