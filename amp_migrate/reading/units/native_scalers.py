"""GradScalers that a program has already: what an earlier run wrote, or its owner.

Files of one program may be migrated one by one. The name of a scaler in a file that is done is then no reason to call the next
one otherwise: were both migrated at once, each would have it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import ClassInfo, argument
from amp_migrate.reading.program.given_values import alternatives
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project

if TYPE_CHECKING:
    from amp_migrate.reading.units.unit import Unit

# Where a scaler's name stands in a file, by the name: in a scope, on the objects of a class, or on another one (`args`).
Place = Scope | ClassInfo | Slot
Places = dict[str, set[Place]]


def scalers(project: Project) -> frozenset[Slot]:
    """The variables, parameters and fields that hold a GradScaler of torch's; see `Project.once`."""
    made: set[Slot] = set()
    for module in project.modules:
        if "GradScaler" not in module.text:
            continue
        assigned: list[ast.Assign | ast.AnnAssign] = [*module.of(ast.Assign), *module.of(ast.AnnAssign)]
        for node in assigned:
            if node.value is not None and any(_is_scaler(module, value) for value in alternatives(node.value)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                made.update(slot for t in targets if (slot := project.slot(module, t)) is not None)
    return frozenset(project.reaches(made))


def kept_apart(project: Project) -> frozenset[str]:
    """The names under which objects that come to many functions, `args`, hold a GradScaler, and nothing else; see `Project.once`."""
    holding, other = set[str](), set[str]()
    known = project.once(scalers)
    for module in project.modules:
        for node in module.of(ast.Attribute) if known else ():
            if isinstance(node.ctx, ast.Store):
                slot = project.slot(module, node)
                apart = slot in known and slot is not None and isinstance(slot.holder, Slot)
                (holding if apart else other).add(node.attr)
    return frozenset(holding - other)


def _is_scaler(module: Module, value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = module.qualify(value.func) or ""
    return name.startswith(("torch.", "fairscale.")) and name.endswith("GradScaler")


class NativeScalers:
    """What one file says of such scalers: see `Project.once`. `nodes` name one, and nothing else; `places` are theirs."""

    def __init__(self, project: Project, module: Module) -> None:
        self.nodes: set[ast.AST] = set()
        self.places: Places = {}
        self._known, self._apart = project.once(scalers), project.once(kept_apart)
        self._project, self._module = project, module
        if self._known:
            for node in module.nodes:
                for name, holder in self._named(node):
                    self.nodes.add(node)
                    self.places.setdefault(name, set()).add(holder)
            self._keys()

    def _named(self, node: ast.AST) -> Iterator[tuple[str, Place]]:
        """The scaler that a node names, and what has that name."""
        project, module = self._project, self._module
        if isinstance(node, (ast.Name, ast.Attribute)):
            slot = project.slot(module, node)
            name = node.id if isinstance(node, ast.Name) else node.attr
            if isinstance(node, ast.Attribute) and name in self._apart and slot is not None:
                yield name, slot
            elif slot in self._known and slot is not None and isinstance(slot.holder, (Scope, ClassInfo, Slot)):
                yield name, module.scope_of(node) if isinstance(node, ast.Name) else slot.holder
        elif isinstance(node, ast.arg):
            scope = module.scope_of(node)
            if Slot(scope, node.arg) in self._known:
                yield node.arg, scope
        elif isinstance(node, ast.keyword):
            value = node.value
            if node.arg and isinstance(value, (ast.Name, ast.Attribute)) and project.slot(module, value) in self._known:
                yield node.arg, module.scope_of(node)
        elif isinstance(node, ast.ImportFrom):
            base = module.import_base(node)
            names = [(a.asname or a.name, project.exported(f"{base}.{a.name}")) for a in node.names]
            if len(names) == 1 and names[0][1] in self._known:
                yield names[0][0], module.scope_of(node)
        elif isinstance(node, ast.Global):
            if all(Slot(module.root, name) in self._known for name in node.names):
                yield from ((name, module.root) for name in node.names)

    def _keys(self) -> None:
        """Keys under which the state of such a scaler is kept in a checkpoint: whatever asks for them."""
        module = self._module
        keys: set[str] = set()
        for call, _ in module.calls:
            kept: ast.AST | None = None
            if self._of_scaler(call, "state_dict"):
                kept = _key_of(module, call)
            elif self._of_scaler(call, "load_state_dict"):
                state = argument(call, 0, "state_dict")
                kept = state.slice if isinstance(state, ast.Subscript) else None
            if isinstance(kept, ast.Constant) and isinstance(kept.value, str):
                keys.add(kept.value)
        for node in module.of(ast.Constant) if keys else ():
            if isinstance(node.value, str) and node.value in keys:
                self.nodes.add(node)
                self.places.setdefault(node.value, set()).add(module.scope_of(node))

    def _of_scaler(self, call: ast.Call, method: str) -> bool:
        func = call.func
        return (
            isinstance(func, ast.Attribute)
            and func.attr == method
            and isinstance(func.value, (ast.Name, ast.Attribute))
            and self._project.slot(self._module, func.value) in self._known
        )


def _key_of(module: Module, call: ast.Call) -> ast.AST | None:
    """The key under which what a call returns is put into a mapping."""
    child: ast.AST = call
    parent = module.parents.get(call)
    while isinstance(parent, ast.IfExp):
        child, parent = parent, module.parents.get(parent)
    if isinstance(parent, ast.Dict):
        return next((k for k, v in zip(parent.keys, parent.values, strict=True) if v is child), None)
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    return target.slice if isinstance(target, ast.Subscript) else None


def meets(unit: Unit, module: Module, name: str) -> bool:
    """Whether a scaler that has a name in a file may meet those of a unit: where its optimizers come to, on an object of one of
    its classes, or wherever the file hands all of its names on."""
    places = unit.project.once(NativeScalers, module).places.get(name, ())
    if not places or module in unit.modules or any(module.name in other.star_imports for other in unit.tied):
        return bool(places)
    return any(_meets(unit, place) for place in places)


def _meets(unit: Unit, place: Place) -> bool:
    if isinstance(place, Slot):  # where the unit keeps amp on an object, it keeps its scaler there
        stored = (site.stmt.targets for site in unit.sites if isinstance(site.stmt, ast.Assign))
        return any(isinstance(target, ast.Attribute) for targets in stored for target in targets)
    if isinstance(place, ClassInfo):
        sites = (*unit.sites, *(init.site for init in unit.inits), *(loss.site for loss in unit.losses))
        own = {unit.project.class_around(site.scope) for site in sites}
        return any(cls is not None and cls.shares_instances(other) for cls in own for other in place.descendants())
    held = {slot.holder for slot in unit.optimizer_slots}
    return any(scope in held for scope in place.chain() if not scope.is_module)
