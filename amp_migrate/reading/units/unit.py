"""A migration unit: one training set-up (its `initialize` calls) with every loss, step, clip and state call that belongs
to it, in whichever functions and files. A unit is migrated whole or not at all."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from amp_migrate.reading.program.definitions import ClassInfo, Function
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.occurrences import Occurrences
from amp_migrate.reading.program.processes import in_process, module_of, tied
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import identifiers, methods_called, walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.sites.casts import is_cast
from amp_migrate.reading.units import siblings
from amp_migrate.reading.units.calls import AddsToEach as AddsToEach
from amp_migrate.reading.units.calls import Blocked as Blocked
from amp_migrate.reading.units.calls import Init as Init
from amp_migrate.reading.units.calls import Loss as Loss
from amp_migrate.reading.units.calls import NeverOn as NeverOn
from amp_migrate.reading.units.calls import ReadsEach as ReadsEach
from amp_migrate.reading.units.calls import Step as Step
from amp_migrate.reading.units.handed_models import handed_models
from amp_migrate.reading.units.inner_clip import InnerClip
from amp_migrate.reading.units.own_scalers import apart, own_scales, suffixes
from amp_migrate.reading.units.passing import passing
from amp_migrate.reading.units.places import Optimizers
from amp_migrate.reading.units.spoken_steps import Spoken, in_lambda, spoken_steps
from amp_migrate.reading.units.telling_names import MODEL_NAMES, OPTIMIZER_NAMES, holds_data
from amp_migrate.reading.units.unscaled import PlainLoss, never_steps, plain_losses
from amp_migrate.reading.units.unscaled import only_asks as only_asks
from amp_migrate.reading.units.wrapped_steps import made_by_wrappers
from amp_migrate.reading.values import run_by_variables


@dataclass(eq=False)
class Unit:
    """Everything that shares one loss scaler."""

    project: Project
    inits: list[Init] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)  # master_params, state_dict, _amp_state ...: everything else of amp

    beside: list[Init] = field(default_factory=list)  # what other units of the program are set up by
    unused: bool = False  # it scales, or keeps the state, in what no program here uses
    unready: bool = False  # it scales for optimizers that are made in sight, and given to no `initialize`
    unreadable: list[Blocked] = field(default_factory=list)  # initialize calls whose arguments cannot be told
    left: frozenset[ast.Call] = frozenset()  # steps that stay with Apex although the unit is migrated
    handed: dict[Scope, str] = field(
        default_factory=dict
    )  # functions that cannot read the switch, and why: it is handed; no reason where it is, if it can be
    uncast: Mapping[Scope, str] = field(default_factory=dict)  # functions that get no region, and why
    mended: Mapping[tuple[str, int], Collection[str]] = field(
        default_factory=dict
    )  # by file and line, what the audit wants written otherwise, and the codes of its doubts
    run: Collection[tuple[str, int, int]] = ()  # by file, line and column, calls that the audit knows to run a model

    def forget(self) -> None:
        """Drop what was derived: the unit has grown."""
        for name in _DERIVED:
            self.__dict__.pop(name, None)

    @cached_property
    def optimizer_slots(self) -> set[Slot]:
        seeds: set[Slot] = set()
        for init in self.inits:
            for node in (*init.optimizers, *init.optimizer_targets):
                seeds.update(self.project.sources(init.module, node))
            seeds |= self._aliased(init)
        for loss in self.losses:
            seeds |= self.project.slots(loss.module, loss.optimizers)
        if self.handle_slots or not self.inits:  # `amp.init` is not told the optimizers, and users hand them over
            seeds = self.project.origins(seeds)
        # Who is given both by a function that prepares a model alone, too, keeps no optimizer under a model's name.
        found = {s for s in self.project.reaches(seeds) if s in seeds or s.name not in MODEL_NAMES}
        # `amp.initialize(model, self.optimizer.optimizer)`: what holds it is another object, whatever it is called.
        holders = {s.holder for s in found if isinstance(s.holder, Slot)}
        return found | self._by_name(OPTIMIZER_NAMES, holders)

    def _aliased(self, init: Init) -> set[Slot]:
        """The fields that hold what `initialize` is given, which it prepares where it is: `optimizer = self.optimizer`,
        `optimizers = [getattr(self, name) for name in self.names]`. Not what may be a model, by the same function."""
        models, optimizers = (
            self.project.origins(s for node in nodes for s in self.project.sources(init.module, node))
            for nodes in (init.models, init.optimizers)
        )
        return {s for s in optimizers - models if isinstance(s.holder, ClassInfo)}

    @cached_property
    def handle_slots(self) -> set[Slot]:
        """Where the handle of `amp.init` is kept or passed to."""
        seeds = {s for i in self.inits for s in self.project.slots(i.module, i.handles)}
        given = [i for i in self.inits if i.site.short == "init" and isinstance(i.stmt, ast.Return)]
        functions = (self.project.functions.get(i.site.scope.node) for i in given)  # `return amp.init()`
        return self.project.reaches(
            seeds | {Slot(function, "return") for function in functions if function is not None}
        )

    @cached_property
    def _models(self) -> tuple[set[Slot], set[Slot], set[ClassInfo]]:
        """What the models are kept in where they are set up; wherever they may be; classes whose objects hold none."""
        seeds: set[Slot] = set()
        for init in self.inits:
            for node in (*init.models, *init.model_targets):
                seeds.update(self.project.sources(init.module, node))
            seeds |= init.seeds
        if not self.inits:
            seeds |= self.project.origins(handed_models(self.project, self.losses))
        return seeds, *siblings.reached(self.project, seeds, self._setting_up())

    def _setting_up(self) -> list[Scope]:
        """Where `initialize` stands; of a library, whose users call it, where losses are scaled."""
        return [i.site.scope for i in self.inits] or [x.module.scope_of(x.call) for x in self.losses]

    def holds_model(self, module: Module, node: ast.AST) -> bool:
        """Whether a variable may hold one of the models, as it is written: not a field of an object that never does."""
        slot = self.project.slot(module, node)
        if slot is None or slot not in self.model_slots:
            return False
        return not isinstance(slot.holder, ClassInfo) or (
            self.project.class_of(module.scope_of(node)) not in self._models[2]
        )

    @cached_property
    def model_slots(self) -> set[Slot]:
        seeds, reached, _ = self._models
        early = {f.scope for i in self.inits for f in self.before(i)}
        names = {s.name for s in reached} & MODEL_NAMES
        together = set(self.reach)
        reached |= run_by_variables.given(self.project, reached)
        reached = {s for s in reached if (module := module_of(s)) is None or module in together}
        found = {s for s in reached if s.holder not in early} | self._by_name(names) | self._unlinked(names)
        # What one factory makes for all (`build_from_cfg`) is not one kind of thing: names tell data from models.
        return {s for s in found if s in seeds or not holds_data(s.name)}

    def _unlinked(self, names: Collection[str]) -> set[Slot]:
        """Variables of the unit's files that have one of these names, where nothing in sight calls what initializes: who
        hands the model over, and is known to run it, cannot be followed."""
        functions = [self.project.functions.get(i.site.scope.node) for i in self.inits]
        if any(f is None or self.project.calls.get(f) for f in functions):
            return set()
        modules = {i.module for i in self.inits} | {loss.module for loss in self.losses}
        variables = [self.project.once(Occurrences, module).variables for module in modules]
        return {Slot(scope, name) for known in variables for name in names for scope in known.get(name, ())}

    def before(self, init: Init) -> Iterator[Function]:
        """Functions that are only called before `initialize`, in the scope that calls it: they ran without Apex."""
        for function in self.project.once(Occurrences, init.module).called_from.get(init.site.scope, ()):
            if all(init.stands_below(module, call) for module, call in self.project.calls[function]):
                yield function

    @cached_property
    def early(self) -> frozenset[Function]:
        """Functions that only run before every `initialize` of the unit: what is called above it in the scope that calls it,
        and what only such functions call. The optimizer that they are given is not prepared yet."""
        found: set[Function] = set()
        functions = self.project.once(_called)
        grown = bool(self.inits)
        while grown:
            more = [f for f in functions if f not in found and self._only_early(f, found)]
            found.update(more)
            grown = bool(more)
        return frozenset(found)

    def _only_early(self, function: Function, early: Collection[Function]) -> bool:
        return all(
            self.project.function_of(module, call) in early or self._above(module, call)
            for module, call in self.project.calls[function]
        )

    def comes_before(self, module: Module, call: ast.Call) -> bool:
        """Whether a call only runs before every `initialize` of the unit."""
        return self.project.function_of(module, call) in self.early or self._above(module, call)

    def _above(self, module: Module, call: ast.Call) -> bool:
        """Whether a call stands above every `initialize`, in the scope of them all."""
        return all(
            i.module is module and i.site.scope is module.scope_of(call) and i.stands_below(module, call)
            for i in self.inits
        )

    def _by_name(self, names: Collection[str], besides: Collection[Slot] = ()) -> set[Slot]:
        """Parameters of the unit's files that have one of these names, in functions that nothing in sight calls, and what they
        are stored in; none that come to be one of `besides`."""
        found: set[Slot] = set()
        modules = {i.module for i in self.inits} | {loss.module for loss in self.losses}
        for module in modules:
            own = self.project.once(_own_parameters, module)
            found.update(s for name in names for s in own.get(name, ()) if not self._scaled_otherwise(s))
        if besides:
            found = {s for s in found if self.project.reaches({s}).isdisjoint(besides)}
        return self.project.reaches(found)

    def _scaled_otherwise(self, slot: Slot) -> bool:
        """Whether what is passed here ends up in a class that scales losses its own way: a loss scaler of the project's."""
        mine = {f.cls.family for f in self.functions() if f.cls is not None}
        keepers = {s.holder for s in self.project.reaches({slot}) if isinstance(s.holder, ClassInfo)}
        return any(cls.method("scale_loss") is not None and cls.family not in mine for cls in keepers)

    @cached_property
    def modules(self) -> list[Module]:
        order: dict[Module, None] = {}
        for init in self.inits:
            order[init.module] = None
        for loss in self.losses:
            order[loss.module] = None
        for site in self.sites:
            order[site.module] = None
        return list(order)

    @cached_property
    def reach(self) -> list[Module]:
        """The modules that may run in one process with the unit, in the program's order."""
        starts = set(self.modules)
        if not starts:
            return self.project.modules
        together = in_process(self.project, starts)
        return [m for m in self.project.modules if m in together]

    @cached_property
    def cast(self) -> list[Module]:
        """The modules that may run in one process with a call of `initialize`, in the program's order: of those that only
        import the hook that scales the loss, say, or that never call what initializes, no operation was ever cast."""
        starts = {i.module for i in self.inits}
        if not starts:
            return self.reach
        together = in_process(self.project, starts) - self.passing
        return [m for m in self.reach if m in together]

    @cached_property
    def passing(self) -> frozenset[Module]:
        """The files that are run by themselves and come by no call of `initialize`."""
        return passing(self.project, self.inits)

    @cached_property
    def tied(self) -> frozenset[Module]:
        """The modules that imports tie to the unit: what it calls, and what calls it."""
        return tied(self.project, self.modules)

    @property
    def steps(self) -> list[Step]:
        """Steps of the unit's optimizers, in source order."""
        return self._all_steps[0]

    @property
    def wrapped_steps(self) -> dict[Step, ClassInfo]:
        """Steps of optimizers that another of the unit's makes in its own `step`, and the class of that one."""
        return self._all_steps[1]

    @cached_property
    def _all_steps(self) -> tuple[list[Step], dict[Step, ClassInfo]]:
        found: list[Step] = []
        left = self.left.union(*(walk(scope.node) for scope in self.overridden))
        for module in self.reach:
            occurrences = self.project.once(Occurrences, module)
            spoken = [s for s in self.project.once(spoken_steps, module) if self._is_mine(occurrences, s)]
            left |= set(in_lambda(spoken))
            steps = [(c, m.value, None) for c, m in occurrences.method_calls("step", self.optimizer_slots)]
            for node, optimizer, kept in (*steps, *((s.call, s.optimizer, s.kept) for s in spoken)):
                if node not in left and not self._of_sibling(module, optimizer):
                    found.append(Step(module, node, optimizer, module.statement(node), kept=kept))
        within = made_by_wrappers(self.project, found, self.optimizer_slots, self.reach)
        own = (s for s in found if s not in within)
        return sorted(own, key=lambda s: (s.module.display, s.call.lineno)), within

    def _is_mine(self, occurrences: Occurrences, step: Spoken) -> bool:
        return not self.optimizer_slots.isdisjoint(occurrences.received(step.optimizer))

    def _of_sibling(self, module: Module, node: ast.expr) -> bool:
        """Whether it is a field of an object that never meets the unit, though its class has the field from the same base."""
        slot = self.project.slot(module, node)
        cls = self.project.class_of(module.scope_of(node))
        return slot is not None and isinstance(slot.holder, ClassInfo) and cls in self.siblings

    @cached_property
    def siblings(self) -> set[ClassInfo]:
        """Classes whose objects hold none of the optimizers that are set up, and scale no loss."""
        named = [(i.module, n) for i in self.inits for n in i.optimizers]
        named = named if self.inits else [(x.module, n) for x in self.losses for n in x.optimizers]
        seeds = {s for module, node in named for s in self.project.sources(module, node)}
        _, besides = siblings.reached(self.project, seeds, self._setting_up())
        scaling = (self.project.class_of(loss.module.scope_of(loss.call)) for loss in self.losses)
        return besides - {c for cls in scaling if cls is not None for c in (*cls.ancestry(), *cls.descendants())}

    @cached_property
    def overridden(self) -> dict[Scope, Function]:
        """Methods that run a whole plain iteration, with what overrides them in a subclass and scales: where mixed precision
        is on, that runs in their place."""
        found: dict[Scope, Function] = {}
        scaling = {self.project.function_of(loss.module, loss.call) for loss in self.losses}
        for mine in scaling:
            if mine is None or mine.cls is None or "step" not in methods_called([mine.node]):
                continue
            for cls in mine.cls.ancestry():
                other = cls.methods.get(mine.name)
                if other is not None and other not in scaling and {"backward", "step"} <= methods_called([other.node]):
                    found[other.scope] = mine
        return found

    @cached_property
    def only_inference(self) -> bool:
        """Whether no loss is scaled and no optimizer steps: autocast alone is needed."""
        if self.losses or self.unused:
            return False
        return never_steps(self) if any(i.optimizers for i in self.inits) else not self.plain_losses

    @cached_property
    def plain_losses(self) -> list[PlainLoss]:
        """The losses of a unit that casts and never scales one: their backwards are plain, and stay so."""
        return plain_losses(self)

    @property
    def trained(self) -> Sequence[Loss | PlainLoss]:
        """The losses that train the unit's models."""
        return self.losses or self.plain_losses

    @property
    def only_casts(self) -> bool:
        """Whether functions are cast here and nothing else is done: such a unit needs no `initialize` in sight."""
        return not self.inits and not self.losses and all(is_cast(site) for site in self.sites)

    @cached_property
    def optimizers(self) -> Optimizers:
        """The optimizers given to `initialize`, told apart by what names may hold them."""
        return Optimizers(self)

    @cached_property
    def scaler_suffixes(self) -> dict[str, str]:
        """Where optimizers have scalers of their own: a suffix for each, by optimizer text."""
        return suffixes(list(self.apart.values())) if self.apart else {}

    @cached_property
    def apart(self) -> dict[int, str]:
        """The optimizers with a scaler of their own, by number, as the code writes them."""
        return apart(self)

    @cached_property
    def own_scales(self) -> dict[str, Init]:
        """Optimizers that each brought a loss scale of their own, by their text: several FP16_Optimizers of one scope."""
        return own_scales(self)

    def inner_clip(self, step: Step) -> InnerClip | None:
        """The clipping that an optimizer did inside of this step."""
        clipping = [init for init in self.inits if init.inner_clip is not None]
        mine = self.optimizers.number(step.home or step.module, step.optimizer) if clipping else None
        for init in clipping:
            if mine is None or self.optimizers.number(init.module, init.optimizers[0]) in (mine, None):
                return init.inner_clip
        return None

    def functions(self) -> Iterator[Function]:
        for loss in self.losses:
            function = self.project.function_of(loss.module, loss.call)
            if function is not None:
                yield function


def _called(project: Project) -> list[Function]:
    """The functions of which a call is in sight."""
    return [f for f in project.functions.values() if project.calls.get(f)]


def _own_parameters(project: Project, module: Module) -> dict[str, list[Slot]]:
    """The parameters of functions that nothing in sight calls, by name; not those that a function hands to `initialize`
    itself, which are no other unit's."""
    handed = project.once(_handed_to_initialize, module)
    uncalled = project.once(Occurrences, module).uncalled
    return {
        name: [s for s in slots if not isinstance(s.holder, Scope) or name not in handed.get(s.holder.node, ())]
        for name, slots in uncalled.items()
    }


def _handed_to_initialize(project: Project, module: Module) -> dict[ast.AST, set[str]]:
    """The names that calls of `initialize` in each function of a file, or in a function inside it, are given."""
    found: dict[ast.AST, set[str]] = {}
    for call, _ in module.calls:
        if project.qualify(module, call.func) == "apex.amp.initialize":
            names = identifiers(call)
            for around in module.ancestors(call):
                if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    found.setdefault(around, set()).update(names)
    return found


_DERIVED = tuple(name for name, kind in vars(Unit).items() if isinstance(kind, cached_property))
