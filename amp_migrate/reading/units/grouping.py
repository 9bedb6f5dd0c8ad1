"""Which sites of `apex.amp` make up one unit: they share an optimizer, a scope, a class, a file or a caller."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.processes import in_process, is_script
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.calls import read_init, read_loss
from amp_migrate.reading.units.legacy import adds_nothing, legacy_units
from amp_migrate.reading.units.legacy_models import is_halved_for_inference
from amp_migrate.reading.units.static_scale import settle_branches
from amp_migrate.reading.units.unit import Blocked, Init, Loss, Unit, only_asks
from amp_migrate.reading.units.unused_keepers import keeps_unused
from amp_migrate.reading.values.sources import Sources


def build_units(project: Project, sites: Sequence[Site]) -> list[Unit]:
    """Group the `apex.amp` sites of a project into units."""
    inits: list[Init] = []
    losses: list[Loss] = []
    rest: list[Site] = []
    failures: dict[Site, Blocked] = {}
    older = legacy_units(project, sites)
    set_up = [s for s in sites if s.name == "apex.amp.initialize"]
    if set_up:  # whose units take it along
        older = [u for u in older if not adds_nothing(u, set_up)]
    taken = {s for u in older for s in u.sites} | {i.site for u in older for i in u.inits}
    for site in sites:
        if site in taken:
            continue
        try:
            if site.name == "apex.amp.initialize":
                init = read_init(project, site)
                if init is not None:
                    inits.append(init)
                    continue
            elif is_halved_for_inference(project, site, sites):
                inits += [init] if (init := read_init(project, site)) is not None else []
                continue
            elif site.name == "apex.amp.scale_loss":
                loss = read_loss(site)
                if loss is not None:
                    losses.append(loss)
                    continue
        except Blocked as failure:
            failures[site] = failure
        rest.append(site)
    units = _Units([*_group(project, inits, losses), *older])
    _attach(project, units, rest)
    for unit in units:
        unit.unreadable += [failures[s] for s in unit.sites if s in failures]
        settle_branches(unit.inits)
        for init in unit.inits:
            init.scaling = [(loss.module, loss.with_stmt) for loss in unit.losses if loss.item is not None]
        unit.beside = [init for other in units if other is not unit for init in other.inits]
    return units


def _group(project: Project, inits: list[Init], losses: list[Loss]) -> list[Unit]:
    """Union inits and losses whose optimizers may be the same object, or which share a scope."""
    units = _Units(Unit(project, inits=[i]) for i in inits)
    orphans: list[Loss] = []
    for loss in losses:
        mine = _stepping(project, units, loss.module, loss.optimizers)
        if not mine:
            orphans.append(loss)
            continue
        _merge(units, mine).losses.append(loss)
    idle = [loss for loss in orphans if project.once(Sources).unused(loss.module, loss.call)]
    libraries: dict[Module, Unit] = {}
    for loss in sorted(orphans, key=idle.__contains__):
        if loss in idle and _apart(units, libraries, loss.module):
            library = libraries.setdefault(loss.module, Unit(project, unused=True))
            library.losses.append(loss)
            continue
        near = _where_made(project, units, loss.module.scope_of(loss.call)) or _nearest(
            project, units, loss.module, loss.call
        )
        unready = _never_given(project, inits, loss)
        if near and not unready:
            _merge(units, near).losses.append(loss)
        else:
            units.append(Unit(project, losses=[loss], unready=unready))
    units += libraries.values()
    # Apex has one global state: initialize calls of one function (several models, one a time) share its scalers.
    scopes = Counter(scope for unit in units for scope in {i.site.scope for i in unit.inits})
    for unit in list(units):
        own = {i.site.scope for i in unit.inits}
        if any(scopes[scope] > 1 for scope in own):
            same = [u for u in units if not own.isdisjoint(i.site.scope for i in u.inits)]
            if len(same) > 1:
                _merge(units, same)
    for unit in units:
        unit.forget()
    return units


class _Units(list[Unit]):
    """Units as they are put together. Which of them may have an optimizer is looked up by where it is kept."""

    def __init__(self, units: Iterable[Unit] = ()) -> None:
        super().__init__(units)
        self.grown: dict[Unit, None] = dict.fromkeys(self)  # since somebody asked
        self._by_slot: dict[Slot, dict[Unit, None]] = {}

    def stepping(self, slots: set[Slot]) -> list[Unit]:
        for unit in self.grown:
            for slot in unit.optimizer_slots:
                self._by_slot.setdefault(slot, {})[unit] = None
        self.grown.clear()
        found = {u for s in slots for u in self._by_slot.get(s, ()) if s in u.optimizer_slots}
        return [u for u in self if u in found] if len(found) > 1 else [u for u in found if u in self]


def _stepping(project: Project, units: _Units, module: Module, optimizers: Sequence[ast.expr]) -> list[Unit]:
    """The units whose optimizers some expressions may be: not by a field that another class has from the same base."""
    slots = {s for node in optimizers for s in project.sources(module, node)}
    classes = {project.class_of(module.scope_of(node)) for node in optimizers}
    return [u for u in units.stepping(slots) if None in classes or not classes <= u.siblings]


def _merge(units: _Units, several: list[Unit]) -> Unit:
    first, *others = several
    for other in others:
        if other is first or other not in units:
            continue
        first.inits += other.inits
        first.losses += other.losses
        first.sites += other.sites
        first.unreadable += other.unreadable
        units.remove(other)
    first.forget()
    units.grown[first] = None
    return first


def _nearest(project: Project, units: list[Unit], module: Module, node: ast.AST) -> list[Unit]:
    """The units a site without a traceable optimizer belongs to: same function, same class, same file, only one."""
    scope = module.scope_of(node)
    scopes = set(scope.chain())
    cls = project.class_around(scope)
    levels: tuple[Callable[[Init], bool], ...] = (
        lambda i: i.site.scope in scopes or scope in set(i.site.scope.chain()),
        lambda i: _alike(cls, project.class_around(i.site.scope)),
        lambda i: i.module is module,
    )
    for level in levels:
        near = [u for u in units if any(level(i) for i in u.inits)]
        if near:
            return near
    return _only(units, module)


def _never_given(project: Project, inits: list[Init], loss: Loss) -> bool:
    """Whether the optimizers of a loss are made where it is seen, by calls that are no function's of the program, and no
    `initialize` names one of them: Apex raises here, whatever else is set up."""
    slots = {s for node in loss.optimizers for s in project.sources(loss.module, node)}
    if not slots or project.origins(slots) != slots or any(isinstance(s.holder, Slot) for s in slots):
        return False
    if not inits:
        return False
    named = {
        word
        for i in inits
        for n in walk(i.call)
        if (word := getattr(n, "attr", None) or getattr(n, "id", None)) and not _of_others(project, i.module, n, slots)
    }
    together = in_process(project, [loss.module])
    if not named.isdisjoint(s.name for s in slots) or not all(
        _followed(project, i) for i in inits if i.module in together
    ):
        return False
    stores = [
        (module, given.value)
        for slot in slots
        for module, target, given in project.once(Sources).stored(slot.name)
        if project.slot(module, target) == slot
    ]
    return {project.slot(m, t) for s in slots for m, t, _ in project.once(Sources).stored(s.name)} >= slots and all(
        isinstance(value, ast.Call) and not project.resolved.get(value) for _, value in stores
    )


def _of_others(project: Project, module: Module, node: ast.AST, slots: Collection[Slot]) -> bool:
    """Whether an expression is a field of objects that are of another class than all those with some fields."""
    slot = project.slot(module, node) if isinstance(node, ast.Attribute) else None
    return (
        slot is not None
        and isinstance(slot.holder, ClassInfo)
        and all(isinstance(s.holder, ClassInfo) and not s.holder.shares_instances(slot.holder) for s in slots)
    )


def _followed(project: Project, init: Init) -> bool:
    """Whether it is seen what makes the optimizers that `initialize` is given, if any: not where they are found by names."""
    slots = project.origins(s for node in init.optimizers for s in project.sources(init.module, node))
    return not slots or any(True in project.foreign.get(s, ()) or project.instances.get(s) for s in slots)


def _apart(units: list[Unit], libraries: Collection[Module], module: Module) -> bool:
    """Whether what is not used is tied to no set-up by imports, and every set-up has something that scales without it: it is
    for other programs, and none of these looks it up by name."""
    prepared = [u for u in units if any(i.optimizers for i in u.inits)]
    return module in libraries or (bool(prepared) and all(u.losses and module not in u.tied for u in prepared))


def _only(units: list[Unit], module: Module) -> list[Unit]:
    """The one unit there is; of several, the only one that imports tie to a module."""
    if len(units) < 2:
        return units
    near = [u for u in units if module in u.tied]
    return near if len(near) == 1 else []


def _where_made(project: Project, units: list[Unit], scope: Scope) -> list[Unit]:
    """The units that are set up where the class of a method, or one that derives from it, is made: `scaler = ApexScaler()`."""
    cls = project.class_around(scope)
    if cls is None or any(_alike(cls, project.class_around(i.site.scope)) for u in units for i in u.inits):
        return []
    made = (call for c in cls.descendants() for call in project.once(Sources).made(c))
    scopes = {module.scope_of(call) for module, call in made}
    return [u for u in units if any(i.site.scope in scopes for i in u.inits)]


def _alike(one: ClassInfo | None, other: ClassInfo | None) -> bool:
    """Whether one object may be of both classes: what has a base in common with a class that sets up is another object."""
    return one is not None and other is not None and one.shares_instances(other)


def _attach(project: Project, units: _Units, rest: list[Site]) -> None:
    """Give every other amp site to the unit it belongs to; what belongs to none stays alone."""
    idle: dict[Module, Unit] = {}
    for site in rest:
        if not site.name.startswith("apex.amp"):
            continue
        if keeps_unused(project, site) and not _has_anchor(project, units, site):
            idle.setdefault(site.module, Unit(project, unused=True)).sites.append(site)
            continue
        mine: list[Unit] = []
        optimizer = site.argument(0, "optimizer") if site.short == "master_params" else None
        if optimizer is not None:
            mine = _stepping(project, units, site.module, [optimizer])
        if not mine:
            mine = _near_any(project, units, site)
        if not mine and only_asks(site):  # of no set-up in particular: with the first that imports tie to the file
            mine = [u for u in units if u.losses and site.module in u.tied][:1]
        mine = [u for u in mine if not u.unready] or mine  # where nothing sets up, nothing is asked of Apex in earnest
        if mine:
            _merge(units, mine).sites.append(site)
        else:
            units.append(Unit(project, sites=[site]))  # which has no optimizers
    units += idle.values()
    for unit in units:
        unit.forget()


def _has_anchor(project: Project, units: list[Unit], site: Site) -> bool:
    """Whether the function, the class or the script of a site sets mixed precision up or scales a loss itself."""
    cls, scopes = project.class_around(site.scope), set(site.scope.chain())
    return any(_alike(cls, project.class_around(s)) or s in scopes for u in units for _, s in _anchors(u))


def _anchors(unit: Unit) -> list[tuple[Module, Scope]]:
    """Where a unit sets mixed precision up or scales a loss."""
    return [(i.module, i.site.scope) for i in unit.inits] + [(x.module, x.site.scope) for x in unit.losses]


def _near_any(project: Project, units: list[Unit], site: Site) -> list[Unit]:
    scopes = set(site.scope.chain())
    cls = project.class_around(site.scope)
    for level in range(3):
        near = [
            u
            for u in units
            if any(
                (level == 0 and not scope.is_module and scope in scopes)
                or (level == 1 and _alike(cls, project.class_around(scope)))
                or (level == 2 and module is site.module)
                for module, scope in _anchors(u)
            )
        ]
        if near:
            return near
    if near := _where_made(project, units, site.scope):
        return [u for u in near if u.losses] or near  # programs that only run a model keep what is theirs
    callers = project.callers(project.function_of(site.module, site.node))
    near = [
        u
        for u in units
        if any(
            project.functions.get(scope.node) in callers or (scope.is_module and scope in callers)
            for _, scope in _anchors(u)
        )
    ]
    if near := [u for u in near if site.module in u.tied]:  # a method's name alone joins no programs
        return near
    known = [u for u in units if u.inits or u.losses]
    if is_script(site.module) and _calls_itself(project, site):
        together = in_process(project, [site.module])
        known = [u for u in known if any(module in together for module, _ in _anchors(u))]
    return _only(known, site.module)


def _calls_itself(project: Project, site: Site) -> bool:
    """Whether a site is run by the code of its own file: not only, perhaps, by a program that loads it by name."""
    function = project.function_of(site.module, site.node)
    return function is None or any(module is site.module for module, _ in project.calls.get(function, ()))
