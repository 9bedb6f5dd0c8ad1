"""Whose gradients a `zero_grad` clears: an optimizer's, or those of the model whose parameters optimizers were made of."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import ClassInfo, dotted
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.units.places import Keys, Names, holds_several
from amp_migrate.reading.units.unit import Unit


def zeroed_by(unit: Unit, module: Module, node: ast.expr, names: Names) -> tuple[Keys, bool]:
    """The optimizers whose gradients go, and whether those of each do: not where it may be any of them."""
    optimizers, slots = unit.optimizers, set(unit.project.sources(module, node))
    keys = optimizers.keys(module, node, names)
    if len(keys) < 2 or dotted(node) in names or any(slots & places for places in optimizers.places):
        return keys, False
    return keys, _is_the_model(unit, module, node) and all(_of_it(unit, slots, i) for i in keys)


def _is_the_model(unit: Unit, module: Module, node: ast.expr) -> bool:
    """Whether an expression is the one model that was set up with all optimizers, or `self` in a method of its class."""
    project = unit.project
    if not unit.inits or any(len(i.models) != 1 or holds_several(project, i.module, i.models[0]) for i in unit.inits):
        return False
    each = [set(project.sources(i.module, i.models[0])) for i in unit.inits]
    if not set.intersection(*each):
        return False
    if isinstance(node, ast.Name) and node.id == module.scope_of(node).self_name:
        own = project.class_of(module.scope_of(node))
        if own is None or not own.is_module:
            return False
        classes = set().union(*(project.instances.get(s, set()) for slots in each for s in slots))
        return any(own in cls.ancestry() for cls in classes)
    return unit.holds_model(module, node)


def _put_into(unit: Unit, parts: set[object], slots: set[Slot], module: Module) -> bool:
    """Whether a model is made of others in a file: `both = torch.nn.ModuleList([generator, discriminator])`."""
    given = unit.project.once(Occurrences, module).assigned_to(slots)
    names = (n for node in given if node.value is not None for n in walk(node.value) if isinstance(n, ast.Name))
    return any(unit.project.slot(module, n) in parts for n in names)


def _of_it(unit: Unit, slots: set[Slot], index: int) -> bool:
    """Whether an optimizer is seen to be made of a model's parameters, or it is not seen of whose it is made."""
    made_of = unit.optimizers.models[index]
    if not made_of or slots & made_of:
        return True
    if any(_put_into(unit, made_of, slots, m) for m in unit.reach):
        return True
    classes = {c for s in slots for cls in unit.project.instances.get(s, ()) for c in cls.ancestry()}
    return any(
        isinstance(s, Slot) and (s.holder in slots or (isinstance(s.holder, ClassInfo) and s.holder in classes))
        for s in made_of
    )
