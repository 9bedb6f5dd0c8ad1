"""A migration unit: one training set-up (its `initialize` calls) with every loss, step, clip and state call that belongs
to it, in whichever functions and files. A unit is migrated whole or not at all."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from amp_migrate.reading.apex import Site
from amp_migrate.reading.casts import is_cast
from amp_migrate.reading.module import LOOP_NODES, WITH_NODES, Module, Scope
from amp_migrate.reading.project import Function, Project, Slot


class Blocked(Exception):
    """A unit that must be left alone, and why."""

    def __init__(self, module: Module, node: ast.AST, code: str, construct: str, message: str) -> None:
        super().__init__(message)
        self.module = module
        self.node = node
        self.code = code
        self.construct = construct
        self.message = message


@dataclass(eq=False)
class Init:
    """One `amp.initialize` call with its arguments by name."""

    site: Site
    call: ast.Call
    arguments: dict[str, ast.expr]
    model_targets: list[ast.expr]
    optimizer_targets: list[ast.expr]

    NAMES = (
        "models",
        "optimizers",
        "enabled",
        "opt_level",
        "cast_model_type",
        "patch_torch_functions",
        "keep_batchnorm_fp32",
        "master_weights",
        "loss_scale",
        "cast_model_outputs",
        "num_losses",
        "verbosity",
        "min_loss_scale",
        "max_loss_scale",
    )

    seeds: set[Slot] = field(default_factory=set)  # further places where its models live
    handles: list[ast.expr] = field(default_factory=list)  # what holds the handle that `amp.init` returned

    @property
    def module(self) -> Module:
        return self.site.module

    @property
    def stmt(self) -> ast.stmt:
        """The statement whose place the scaler takes."""
        return self.site.stmt

    @property
    def models(self) -> list[ast.expr]:
        return elements(self.arguments.get("models"))

    @property
    def optimizers(self) -> list[ast.expr]:
        found = self.arguments.get("optimizers")
        if found is None or (isinstance(found, ast.Constant) and found.value is None):
            return []
        return elements(found)

    def literal(self, name: str) -> object:
        """The literal value of an argument; None where absent, Ellipsis where computed."""
        node = self.arguments.get(name)
        if node is None:
            return None
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            return ...


@dataclass(eq=False)
class Loss:
    """One `with amp.scale_loss(...) as scaled:` statement; or, without `item`, a call of an FP16_Optimizer's `backward`."""

    site: Site
    call: ast.Call
    with_stmt: ast.stmt
    item: ast.withitem | None
    loss: ast.expr
    optimizers: list[ast.expr]
    alias: str | None

    @property
    def module(self) -> Module:
        return self.site.module

    @property
    def delay_unscale(self) -> ast.expr | None:
        return self.site.argument(4, "delay_unscale")


@dataclass(eq=False)
class Step:
    """One `optimizer.step()` of an optimizer that Apex handles."""

    module: Module
    call: ast.Call
    optimizer: ast.expr
    stmt: ast.stmt

    @cached_property
    def scope(self) -> Scope:
        return self.module.scope_of(self.call)


@dataclass(eq=False)
class Unit:
    """Everything that shares one loss scaler."""

    project: Project
    inits: list[Init] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)  # master_params, state_dict, _amp_state ...: everything else of amp

    unreadable: list[Blocked] = field(default_factory=list)  # initialize calls whose arguments cannot be told

    @cached_property
    def optimizer_slots(self) -> set[Slot]:
        seeds: set[Slot] = set()
        for init in self.inits:
            for node in (*init.optimizers, *init.optimizer_targets):
                seeds.update(self.project.sources(init.module, node))
        for loss in self.losses:
            for node in loss.optimizers:
                slot = self.project.slot(loss.module, node)
                if slot is not None:
                    seeds.add(slot)
        if self.handle_slots:  # `amp.init` is not told the optimizers
            seeds = self.project.origins(seeds)
        return self.project.reaches(seeds) | self._by_name(OPTIMIZER_NAMES)

    @cached_property
    def handle_slots(self) -> set[Slot]:
        """Where the handle of `amp.init` is kept or passed to."""
        found = (self.project.slot(i.module, node) for i in self.inits for node in i.handles)
        return self.project.reaches({slot for slot in found if slot is not None})

    @cached_property
    def model_slots(self) -> set[Slot]:
        seeds: set[Slot] = set()
        for init in self.inits:
            for node in (*init.models, *init.model_targets):
                seeds.update(self.project.sources(init.module, node))
            seeds |= init.seeds
        reached = self.project.reaches(self.project.origins(seeds))
        early = {f.scope for i in self.inits for f in self._before(i)}
        names = {s.name for s in reached} & MODEL_NAMES
        return {s for s in reached if s.holder not in early} | self._by_name(names)

    def _before(self, init: Init) -> Iterator[Function]:
        """Functions that are only called before `initialize`, in the scope that calls it: they ran without Apex."""
        for function, calls in self.project.calls.items():
            if calls and all(
                module is init.module
                and module.scope_of(call) is init.site.scope
                and call.lineno < init.call.lineno
                and not any(
                    isinstance(a, LOOP_NODES) and a in set(module.ancestors(init.call)) for a in module.ancestors(call)
                )
                for module, call in calls
            ):
                yield function

    def _by_name(self, names: Collection[str]) -> set[Slot]:
        """Parameters of the unit's files that have one of these names, in functions that nothing in sight calls."""
        found: set[Slot] = set()
        modules = {i.module for i in self.inits} | {loss.module for loss in self.losses}
        for function in self.project.functions.values():
            if function.module in modules and not self.project.calls.get(function):
                found.update(Slot(function.scope, p) for p in function.scope.params if p in names)
        return self.project.reaches(found)

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
    def steps(self) -> list[Step]:
        """Steps of the unit's optimizers, in source order."""
        found: list[Step] = []
        for module in self.project.modules:
            if "step" not in module.text:
                continue
            for node, _ in module.calls:
                if isinstance(node.func, ast.Attribute) and node.func.attr == "step":
                    slot = self.project.slot(module, node.func.value)
                    if slot is not None and slot in self.optimizer_slots:
                        found.append(Step(module, node, node.func.value, module.statement(node)))
        return sorted(found, key=lambda s: (s.module.display, s.call.lineno))

    @cached_property
    def only_inference(self) -> bool:
        """Whether no optimizer is handed to Apex and no loss is scaled: autocast alone is needed."""
        return not self.losses and not any(i.optimizers for i in self.inits)

    @property
    def only_casts(self) -> bool:
        """Whether functions are cast here and nothing else is done: such a unit needs no `initialize` in sight."""
        return not self.inits and not self.losses and all(is_cast(site) for site in self.sites)

    @cached_property
    def scaler_suffixes(self) -> dict[str, str]:
        """Where `num_losses` gives each optimizer losses of its own: a suffix for its own scaler, by optimizer text."""
        counts = {i.literal("num_losses") for i in self.inits} - {None, 1}
        groups: dict[str, set[object]] = {}
        for loss in self.losses:
            number = loss.site.argument(2, "loss_id")
            if len(loss.optimizers) != 1 or not isinstance(number, ast.Constant):
                return {}
            groups.setdefault(loss.module.source(loss.optimizers[0]), set()).add(number.value)
        numbers = [n for g in groups.values() for n in g]
        if not counts or len(groups) < 2 or len(numbers) != len(set(numbers)):
            return {}
        stems = {text: text.rpartition(".")[2] for text in groups}
        prefix = _common_start(list(stems.values()))
        return {text: _suffix(stem, prefix) for text, stem in stems.items()}

    def functions(self) -> Iterator[Function]:
        for loss in self.losses:
            function = self.project.function_of(loss.module, loss.call)
            if function is not None:
                yield function


OPTIMIZER_NAMES = frozenset("optimizer optim opt optimizers".split())
MODEL_NAMES = frozenset(
    "model net network netG netD generator discriminator encoder decoder student teacher backbone classifier "
    "self.model G D gen dis module model_ema".split()
)


def _common_start(words: Sequence[str]) -> str:
    """The letters that all words begin with."""
    length = 0
    while all(len(w) > length and w[length] == words[0][length] for w in words):
        length += 1
    return words[0][:length]


def _suffix(stem: str, prefix: str) -> str:
    """`D` of optimizerD, `_G` of optimizer_G, `_actor` of actor_optim."""
    if prefix:
        rest = stem[len(prefix) :]
        return f"_{rest}" if prefix.endswith("_") else rest
    for ending in ("_optimizer", "_optim", "_opt"):
        stem = stem.removesuffix(ending)
    return f"_{stem}"


def elements(node: ast.expr | None) -> list[ast.expr]:
    """The members of a literal list or tuple; any other expression stands for itself."""
    if node is None:
        return []
    if isinstance(node, (ast.List, ast.Tuple)):
        return [e.value if isinstance(e, ast.Starred) else e for e in node.elts]
    return [node]


def read_init(site: Site) -> Init | None:
    """The `initialize` call of a site; None where the name is not called.

    Raises Blocked where its arguments cannot be told apart.
    """
    call = site.call
    if call is None:
        return None
    arguments: dict[str, ast.expr] = {}
    for name, value in zip(Init.NAMES, call.args, strict=False):
        if isinstance(value, ast.Starred):
            raise Blocked(site.module, call, "AMP111", site.construct, "the arguments of initialize come from *args")
        arguments[name] = value
    for keyword in call.keywords:
        if keyword.arg is not None:
            arguments[keyword.arg] = keyword.value
            continue
        literal = literal_dict(site.module, keyword.value)
        if literal is None:
            raise Blocked(
                site.module,
                call,
                "AMP111",
                site.construct,
                f"the arguments of initialize come from **{ast.unparse(keyword.value)}, whose contents are not in sight; "
                "write them out",
            )
        arguments.update(literal)
    models, optimizers = _targets(site, call, arguments)
    return Init(site, call, arguments, models, optimizers)


def literal_dict(module: Module, node: ast.expr) -> dict[str, ast.expr] | None:
    """Keyword arguments out of a literal dict, also through a name assigned once."""
    if isinstance(node, ast.Name):
        owner = module.scope_of(node).lookup(node.id)
        bindings = owner.bindings[node.id] if owner is not None else []
        if len(bindings) != 1:
            return None
        stmt = module.parents.get(bindings[0])
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            return None
        node = stmt.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        return {k.arg: k.value for k in node.keywords if k.arg} if all(k.arg for k in node.keywords) else None
    if not isinstance(node, ast.Dict):
        return None
    found: dict[str, ast.expr] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        found[key.value] = value
    return found


def _targets(site: Site, call: ast.Call, arguments: dict[str, ast.expr]) -> tuple[list[ast.expr], list[ast.expr]]:
    parent = site.module.parents.get(call)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return [], []
    target = parent.targets[0]
    optimizers = arguments.get("optimizers")
    if optimizers is None or (isinstance(optimizers, ast.Constant) and optimizers.value is None):
        return elements(target), []
    if isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 2:
        return elements(target.elts[0]), elements(target.elts[1])
    return [], []


def read_loss(site: Site) -> Loss | None:
    """The `with` statement of a scale_loss site; None where it is used in another way."""
    call = site.call
    if call is None:
        return None
    item = site.module.parents.get(call)
    if not isinstance(item, ast.withitem):
        return None
    with_stmt = site.module.parents[item]
    assert isinstance(with_stmt, WITH_NODES)
    loss = site.argument(0, "loss")
    if loss is None:
        return None
    alias = item.optional_vars.id if isinstance(item.optional_vars, ast.Name) else None
    return Loss(site, call, with_stmt, item, loss, elements(site.argument(1, "optimizers")), alias)


def build_units(project: Project, sites: Sequence[Site]) -> list[Unit]:
    """Group the `apex.amp` sites of a project into units."""
    from amp_migrate.reading.legacy import legacy_units

    inits: list[Init] = []
    losses: list[Loss] = []
    rest: list[Site] = []
    failures: dict[Site, Blocked] = {}
    older = legacy_units(project, sites)
    taken = {s for u in older for s in u.sites} | {i.site for u in older for i in u.inits}
    for site in sites:
        if site in taken:
            continue
        try:
            if site.name == "apex.amp.initialize":
                init = read_init(site)
                if init is not None:
                    inits.append(init)
                    continue
            elif site.name == "apex.amp.scale_loss":
                loss = read_loss(site)
                if loss is not None:
                    losses.append(loss)
                    continue
        except Blocked as failure:
            failures[site] = failure
        rest.append(site)
    units = [*_group(project, inits, losses), *older]
    _attach(project, units, rest)
    for unit in units:
        unit.unreadable += [failures[s] for s in unit.sites if s in failures]
    return units


def _group(project: Project, inits: list[Init], losses: list[Loss]) -> list[Unit]:
    """Union inits and losses whose optimizers may be the same object, or which share a scope."""
    units = [Unit(project, inits=[i]) for i in inits]
    orphans: list[Loss] = []
    for loss in losses:
        slots = {s for node in loss.optimizers for s in project.sources(loss.module, node)}
        mine = [u for u in units if slots & u.optimizer_slots]
        if not mine:
            orphans.append(loss)
            continue
        _merge(units, mine).losses.append(loss)
    for loss in orphans:
        near = _nearest(project, units, loss.module, loss.call)
        if near:
            _merge(units, near).losses.append(loss)
        else:
            units.append(Unit(project, losses=[loss]))
    # Apex has one global state: initialize calls of one function (several models, one a time) share its scalers.
    for unit in list(units):
        same = [
            u
            for u in units
            if {i.site.scope for i in u.inits} & {i.site.scope for i in unit.inits} and (u.losses or unit.losses)
        ]
        if len(same) > 1:
            _merge(units, same)
    for unit in units:
        _forget(unit)
    return units


def _merge(units: list[Unit], several: list[Unit]) -> Unit:
    first, *others = several
    for other in others:
        if other is first or other not in units:
            continue
        first.inits += other.inits
        first.losses += other.losses
        first.sites += other.sites
        first.unreadable += other.unreadable
        units.remove(other)
    _forget(first)
    return first


def _forget(unit: Unit) -> None:
    """Drop what was derived: the unit has grown."""
    for name in (
        "optimizer_slots",
        "model_slots",
        "handle_slots",
        "modules",
        "steps",
        "only_inference",
        "scaler_suffixes",
    ):
        unit.__dict__.pop(name, None)


def _nearest(project: Project, units: list[Unit], module: Module, node: ast.AST) -> list[Unit]:
    """The units a site without a traceable optimizer belongs to: same function, same class, same file, only one."""
    scope = module.scope_of(node)
    scopes = set(scope.chain())
    family = _family(project, scope)
    levels: tuple[Callable[[Init], bool], ...] = (
        lambda i: i.site.scope in scopes or scope in set(i.site.scope.chain()),
        lambda i: family is not None and _family(project, i.site.scope) is family,
        lambda i: i.module is module,
    )
    for level in levels:
        near = [u for u in units if any(level(i) for i in u.inits)]
        if near:
            return near
    return units if len(units) == 1 else []


def _family(project: Project, scope: Scope) -> object:
    owner = scope.owner_class
    return project.classes[owner.node].family if owner is not None else None


def _attach(project: Project, units: list[Unit], rest: list[Site]) -> None:
    """Give every other amp site to the unit it belongs to; what belongs to none stays alone."""
    for site in rest:
        if not site.name.startswith("apex.amp"):
            continue
        mine: list[Unit] = []
        optimizer = site.argument(0, "optimizer") if site.short == "master_params" else None
        if optimizer is not None:
            slots = set(project.sources(site.module, optimizer))
            mine = [u for u in units if slots & u.optimizer_slots]
        if not mine:
            mine = _near_any(project, units, site)
        if mine:
            _merge(units, mine).sites.append(site)
        else:
            units.append(Unit(project, sites=[site]))
    for unit in units:
        _forget(unit)


def _near_any(project: Project, units: list[Unit], site: Site) -> list[Unit]:
    scopes = set(site.scope.chain())
    family = _family(project, site.scope)

    def anchors(unit: Unit) -> list[tuple[Module, Scope]]:
        return [(i.module, i.site.scope) for i in unit.inits] + [(x.module, x.site.scope) for x in unit.losses]

    for level in range(3):
        near = [
            u
            for u in units
            if any(
                (level == 0 and not scope.is_module and scope in scopes)
                or (level == 1 and family is not None and _family(project, scope) is family)
                or (level == 2 and module is site.module)
                for module, scope in anchors(u)
            )
        ]
        if near:
            return near
    callers = _callers(project, site)
    near = [
        u
        for u in units
        if any(
            project.functions.get(scope.node) in callers or (scope.is_module and scope in callers)
            for _, scope in anchors(u)
        )
    ]
    if near:
        return near
    with_work = [u for u in units if u.inits or u.losses]
    return with_work if len(with_work) == 1 else []


def _callers(project: Project, site: Site) -> set[object]:
    """Functions and module scopes from which the function of a site is called, through any number of calls."""
    seen: set[object] = set()
    queue = [project.function_of(site.module, site.node)]
    while queue:
        function = queue.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        for module, call in project.calls.get(function, []):
            scope = module.scope_of(call)
            if scope.is_module:
                seen.add(scope)
            queue.append(project.functions.get(scope.node))
    return seen
