"""Which of a unit's optimizers an expression stands for, or steps the parameters of."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import ClassInfo, called_name, dotted, elements
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import LOOP_NODES, Module
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.program.processes import importing
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.units.held import held_by_one

if TYPE_CHECKING:
    from amp_migrate.reading.units.unit import Unit

Keys = frozenset[int]  # which optimizers an expression may stand for
Group = tuple[set[object], set[object]]  # what was given to `initialize`, where that may be
Names = Mapping[str, Keys]  # parameters of the function being walked -> optimizers


class Optimizers:
    """The optimizers given to `initialize`, by number."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.project = unit.project
        self.seeds: list[set[object]] = []  # of each: what was given to `initialize`
        self.places = self._find()  # of each: where it may be
        several = len(self.places) > 1  # of a single one every model's parameters are its
        self.models = [self._parameters_of(group) if several else set() for group in self.places]

    @cached_property
    def single(self) -> Keys:
        """Those that are one optimizer and no list of them, as far as their uses tell."""
        return frozenset(i for i in range(len(self.places)) if not self._plural(i))

    def _plural(self, index: int) -> bool:
        """Whether what was given to `initialize` may be a collection: it is gone through, indexed or added to somewhere,
        where it was not first put into one."""
        kept = {s for s in self.places[index] if isinstance(s, Slot)}
        displays = [self.project.once(_displays, module) for module in self.unit.reach]
        held = set(self.project.reaches(s for s in kept if any(s in d for d in displays)))
        if self.seeds[index] & (held | self._repeated | self._listed):
            return True
        names = {s.name for s in kept - held}
        kept -= held
        modules = (self.project.once(TakenApart, module) for module in self.unit.reach)
        return any(not kept.isdisjoint(module.named(name)) for module in modules for name in names)

    @cached_property
    def _repeated(self) -> set[object]:
        """What is given to an `initialize` that may run more than once: in a loop, or in a function called several times."""
        found: set[object] = set()
        for init in self.unit.inits:
            function = self.project.function_of(init.module, init.call)
            often = function is not None and len(self.project.calls.get(function, ())) > 1
            if often or any(isinstance(a, LOOP_NODES) for a in init.module.ancestors(init.call)):
                for node in (*init.optimizers, *init.optimizer_targets):
                    found.update(self.project.sources(init.module, node))
        return found

    @cached_property
    def _listed(self) -> set[object]:
        """What is given to an `initialize` by a parameter for which a call has a list: `self.prepare(models, [opt_g, opt_d])`."""
        found: set[object] = set()
        for init in self.unit.inits:
            function = self.project.function_of(init.module, init.call)
            names = {n.id: n for n in init.optimizers if isinstance(n, ast.Name)}
            if function is None or not names:
                continue
            for _, call in self.project.calls.get(function, ()):
                for name, value in self.project.arguments(function, call):
                    if name in names and isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) > 1:
                        found.update(self.project.sources(init.module, names[name]))
        return found

    def __len__(self) -> int:
        return len(self.places)

    def _find(self) -> list[set[object]]:
        """The places that each optimizer given to `initialize` may be in."""
        groups: list[Group] = []
        for init in self.unit.inits:
            targets = init.optimizer_targets
            for index, node in enumerate(init.optimizers):
                seeds = set(self.project.sources(init.module, node))
                if index < len(targets) and len(targets) == len(init.optimizers):
                    seeds.update(self.project.sources(init.module, targets[index]))
                group: Group = set(seeds), set(self.project.reaches(seeds))
                # One optimizer may be initialized in several branches.
                same = [g for g in groups if g[0] & group[1] or g[1] & group[0]]
                groups = [g for g in groups if g not in same]
                groups.append(_together([group, *same]))
        groups = self._with_wrapped(groups)
        if len(groups) == len(self.unit.inits) > 1 and self._in_runs_of_their_own():
            all_seeds, all_places = zip(*groups, strict=True)
            groups = [(set[object]().union(*all_seeds), set[object]().union(*all_places))]
        self.seeds = [seeds for seeds, _ in groups] or [set()]
        return [places for _, places in groups] or [set()]

    def _with_wrapped(self, groups: list[Group]) -> list[Group]:
        """The same, where an optimizer of the program's that steps others in its own `step` is one with them: what it steps
        with are their gradients."""
        for step, cls in self.unit.wrapped_steps.items():
            inner = set(self.project.sources(step.module, step.optimizer))
            kinds = {*cls.descendants()}
            same = [g for g in groups if g[1] & inner or any(self._made_as(kinds, place) for place in g[0])]
            groups = [*(g for g in groups if g not in same), *([_together(same)] if same else [])]
        return groups

    def _made_as(self, kinds: set[ClassInfo], place: object) -> bool:
        return isinstance(place, Slot) and not kinds.isdisjoint(self.project.instances.get(place, ()))

    def _in_runs_of_their_own(self) -> bool:
        """Whether each `initialize` has one optimizer and belongs to programs of its own: what they share never meets two."""
        inits = self.unit.inits
        runs = [importing(self.project, i.module) for i in inits]
        apart = sum(map(len, runs)) == len(set().union(*runs))
        return apart and all(len(i.optimizers) == 1 for i in inits)

    def _parameters_of(self, group: set[object]) -> set[object]:
        """The places that the models which an optimizer was built from may be in."""
        seeds: set[Slot] = set()
        for module in self.unit.reach:
            for node in self.project.once(Occurrences, module).assigned_to(group):
                for model in _with_parameters(node.value):
                    seeds.update(self.project.sources(module, model))
            for value in self._entries(module, group):
                for model in _with_parameters(value):
                    seeds.update(self.project.sources(module, model))
        return set(self.project.reaches(seeds))

    def _entries(self, module: Module, group: set[object]) -> Iterator[ast.expr]:
        """What a mapping written out gives a place: `self.optimizers = {"generator": Adam(...)}`."""
        for node in self.project.once(Occurrences, module).assignments:
            if isinstance(node.value, ast.Dict):
                for key, value in zip(node.value.keys, node.value.values, strict=True):
                    name = f"[{key.value}]" if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
                    if name and any(Slot(self.project.slot(module, t), name) in group for t in node.targets):
                        yield value

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

    def given_to(self, module: Module, calls: Iterable[ast.Call], names: Names) -> Keys:
        """The optimizers that some calls are asked of or given, themselves or what they step; none if none is."""
        given = (a for c in calls for a in (c.func, *c.args, *(k.value for k in c.keywords)))
        return frozenset[int]().union(*(self.stands_for(module, a, names) for a in given))

    def keys(self, module: Module, node: ast.expr, names: Names) -> Keys:
        """The optimizers that an expression may stand for: all of them where it cannot be told."""
        if isinstance(node, (ast.Name, ast.Attribute)) and (text := dotted(node)) in names and text is not None:
            return names[text]
        held = held_by_one(self.project, module, node) if len(self.places) > 1 else None
        slots = set(self.project.sources(module, node if held is None else held))
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


def _together(groups: Sequence[Group]) -> Group:
    return set[object]().union(*(seeds for seeds, _ in groups)), set[object]().union(*(places for _, places in groups))


_DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MAKING = frozenset("list tuple sorted filter map reversed".split())
_GOING_THROUGH = frozenset("list tuple zip enumerate iter map reversed sorted len chain".split())


def _displays(project: Project, module: Module) -> set[Slot | None]:
    """The variables that a file gives a list, tuple or mapping written out, or to which it adds something; see
    `Project.once`."""
    found: set[Slot | None] = set()
    for node in project.once(Occurrences, module).assignments:
        if isinstance(node.value, _DISPLAYS):
            found.update(project.slot(module, t) for t in node.targets)
    for name in ("append", "extend", "add"):
        found.update(project.slot(module, f.value) for _, f in module.method_calls.get(name, ()))
    return found


class TakenApart:
    """What a file uses as a collection, by its written name; see `Project.once`."""

    def __init__(self, project: Project, module: Module) -> None:
        self.project = project
        self.module = module
        self._named: dict[str, set[Slot]] = {}

    def named(self, name: str) -> set[Slot]:
        """The variables and attributes so used whose last name is this one."""
        if name not in self._named:
            module = self.module
            nodes = (*module.loads.get(name, ()), *module.named.get(name, ()))
            used = (n for n in nodes if isinstance(n, ast.expr) and taken_apart(module, n))
            self._named[name] = self.project.slots(module, used)
        return self._named[name]


def holds_several(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether an expression is a collection where it stands: it makes one (`[optimizers[name] for name in names]`,
    `list(optimizers.values())`), or is a variable or attribute that is made as one, gone through, indexed or added to."""
    if makes_several(node):
        return True
    slot = project.slot(module, node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if slot is None:
        return False
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return slot in project.once(_displays, module) or slot in project.once(TakenApart, module).named(name)


def makes_several(node: ast.expr) -> bool:
    """Whether an expression makes a collection of what others hold; a list that is written out says itself what is in it."""
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        first = node.generators[0].iter
        return len(node.generators) > 1 or not isinstance(first, (ast.List, ast.Tuple)) or len(first.elts) > 1
    if isinstance(node, ast.Call):
        made = isinstance(node.func, ast.Name) and node.func.id in _MAKING and bool(node.args)
        return made or (isinstance(node.func, ast.Attribute) and node.func.attr == "values" and not node.args)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add)
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)


def taken_apart(module: Module, node: ast.expr) -> bool:
    """Whether an expression is used as a collection."""
    parent = module.parents.get(node)
    if isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)):
        return parent.iter is node
    if isinstance(parent, ast.Subscript):
        return parent.value is node
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("append", "extend", "values", "items", "keys")
    if isinstance(parent, ast.Call):
        called = called_name(parent)
        return node in parent.args and called in _GOING_THROUGH
    return isinstance(parent, ast.Starred)


def models_given(project: Project, module: Module) -> dict[str, set[str]]:
    """The models whose parameters an assignment asks for, by its targets: `optimizer = SGD(model.parameters())`; see
    `Project.once`."""
    found: dict[str, set[str]] = {}
    for node in module.of(ast.Assign):
        given = [("", node.value)]
        if isinstance(node.value, ast.Dict):  # `optimizers = {"generator": Adam(models["generator"].parameters())}`
            pairs = zip(node.value.keys, node.value.values, strict=True)
            given = [(f"[{ast.unparse(key)}]", value) for key, value in pairs if key is not None]
        for entry, value in given:
            models = {name for model in _with_parameters(value) if (name := place_name(model))}
            for target in node.targets if models else ():
                found.setdefault(ast.unparse(target) + entry, set()).update(models)
    return found


def place_name(node: ast.AST) -> str | None:
    """What a variable, an attribute or an entry of a mapping under a literal key is called."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        base = place_name(node.value)
        return f"{base}[{node.slice.value!r}]" if base else None
    return dotted(node)


def _with_parameters(node: ast.AST) -> Iterator[ast.expr]:
    """The models whose parameters an expression asks for."""
    for part in walk(node):
        if isinstance(part, ast.Attribute) and part.attr in ("parameters", "named_parameters"):
            yield part.value
