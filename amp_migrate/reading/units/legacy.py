"""The older APIs, read into the same units as `amp.initialize`: `amp.init` with its handle, and `FP16_Optimizer`.

A handle's `scale_loss` and an FP16_Optimizer's `backward` are losses of the unit; what else is done with either is a
site of it, named `apex.amp.handle.X` or `apex.fp16_utils.FP16_Optimizer.X`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from amp_migrate.reading.conditions.tests import availability
from amp_migrate.reading.program.definitions import argument, is_off, literal
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.calls import read_loss
from amp_migrate.reading.units.inner_clip import InnerClip, inner_clip
from amp_migrate.reading.units.legacy_models import HALVERS, seed
from amp_migrate.reading.units.legacy_scale import Scale, over_fused_adam, read_scale
from amp_migrate.reading.units.legacy_settled import settle_scales
from amp_migrate.reading.units.unit import Blocked, Init, Loss, Unit

HANDLE = "apex.amp.handle."
WRAPPER = "apex.fp16_utils.FP16_Optimizer."

# What only an FP16_Optimizer has; all else of it is the wrapped optimizer's own.
WRAPPER_ATTRIBUTES = frozenset(
    [
        "backward",
        "clip_master_grads",
        "update_master_grads",
        "inspect_master_grad_data",
        "loss_scale",
        "loss_scaler",
        "cur_scale",
        "overflow",
        "optimizer",
        "dynamic_loss_scale",
        "fp16_groups",
        "fp16_groups_flat",
        "fp32_from_fp16_groups",
        "fp32_from_fp32_groups",
        "fp32_groups_flat",
        "fp32_from_fp16",
        "first_closure_call_this_step",
        "maybe_print",
        "cur_iter",
        "last_overflow_iter",
        "scale_factor",
        "scale_window",
        "all_fp16_params",
        "all_fp32_from_fp16_params",
        "all_fp32_from_fp32_params",
        "clip_fp32_grads",
        "state_dict",
        "load_state_dict",
    ]
)


@dataclass(eq=False)
class LegacyInit(Init):
    """A call of `FP16_Optimizer` or `amp.init`. `choice`: the `if` of which each branch wraps the same optimizer."""

    scale: Scale = field(default_factory=Scale)
    choice: ast.If | None = None
    calls: list[ast.Call] = field(default_factory=list)

    @property
    def stmt(self) -> ast.stmt:
        return self.choice if self.choice is not None else self.site.stmt

    @property
    def models(self) -> list[ast.expr]:
        return []

    @property
    def wraps(self) -> bool:
        """Whether it is an FP16_Optimizer; else a handle."""
        return bool(self.optimizers)

    @cached_property
    def inner_clip(self) -> InnerClip | None:
        old = self.wraps and over_fused_adam(self.site)  # the other wrapper handed no norms to the step
        return inner_clip(self.project, self.module, self.optimizers[0]) if old else None

    @property
    def brings_scale(self) -> bool:
        return self.wraps


def is_legacy(unit: Unit) -> bool:
    """Whether a unit uses the older APIs alone."""
    return bool(unit.inits) and all(isinstance(i, LegacyInit) for i in unit.inits)


def legacy_units(project: Project, sites: Sequence[Site]) -> list[Unit]:
    """The units of the older APIs; a site that cannot be read is a unit that says so."""
    handles: list[Unit] = []
    wrappers: list[Unit] = []
    unreadable: list[Unit] = []
    for group in _grouped([s for s in sites if s.call is not None and is_legacy_call(s)]):
        try:
            if group[0].name == "apex.amp.init":
                handles.append(Unit(project, inits=[_read_handle(project, group[0])]))
            else:
                wrappers.append(Unit(project, inits=[_read_wrapper(project, group)]))
                wrappers[-1].sites += group[1:]
        except Blocked as failure:
            unreadable.append(Unit(project, sites=group, unreadable=[failure]))
    units = [*_joined(handles, "handle_slots"), *_joined(wrappers, "optimizer_slots")]
    for unit in units:
        try:
            settle_scales([i for i in unit.inits if isinstance(i, LegacyInit)])
            _follow(unit)
        except Blocked as failure:
            unit.unreadable.append(failure)
    units = _without_idle(project, units)
    for unit in units:
        halved = (s for s in sites if s.short in HALVERS and s.name.startswith("apex."))
        unit.sites += [s for s in halved if _belongs(unit, units, s)]
        unit.sites += [s for s in sites if is_legacy_call(s) and _asks_for_inner(unit, s)]
        seed(unit)
    asked = [*only_asked(sites), *(s for unit in units for s in unit.sites)]
    unreadable += [_not_called(project, s) for s in sites if s.call is None and is_legacy_call(s) and s not in asked]
    return [*units, *unreadable]


def _without_idle(project: Project, units: list[Unit]) -> list[Unit]:
    """The units, where a handle that nothing is asked of is a site of the FP16_Optimizer that trains in the same process."""
    wrapping = [u for u in units if u.inits[0].optimizers]
    for unit in [u for u in units if _is_idle(u)]:
        beside = in_process(project, [i.module for i in unit.inits])
        home = next((u for u in wrapping if any(i.module in beside for i in u.inits)), None)
        if home is not None:
            home.sites += [i.site for i in unit.inits]
            home.forget()
            units = [u for u in units if u is not unit]
    return units


def adds_nothing(unit: Unit, set_up: Iterable[Site]) -> bool:
    """Whether a unit is a handle that is asked for nothing, and is off (`amp.init(False)`, to reset what another run set up) or
    stands in one block with a set-up that patches torch all the same."""
    init = unit.inits[0] if len(unit.inits) == 1 else None
    if init is None or isinstance(init.stmt, ast.Return) or not _is_idle(unit):
        return False
    module = init.site.module
    block = module.block(init.stmt)
    beside = (s for s in set_up if s.module is module and module.block(s.stmt) is block)
    return is_off(init.arguments.get("enabled")) or any(literal(s.argument(3, "opt_level")) == "O1" for s in beside)


def _is_idle(unit: Unit) -> bool:
    """Whether a unit is a handle that nothing is asked of, in a variable that nothing reads."""
    if unit.losses or unit.sites or unit.unreadable or any(i.optimizers for i in unit.inits):
        return False
    return not any(isinstance(s.holder, Scope) and any(s.holder.reads(s.name)) for s in unit.handle_slots)


def only_asked(sites: Sequence[Site]) -> list[Site]:
    """Where `isinstance(optimizer, FP16_Optimizer)` is asked in a program that makes none, nor a class of it."""
    found = [s for s in sites if is_legacy_call(s) and s.short == "FP16_Optimizer"]
    return found if all(s.call is None and asks_class(s.module, s.node) is not None for s in found) else []


def asks_class(module: Module, node: ast.AST) -> ast.Call | ast.Compare | None:
    """The `isinstance` that asks for a class, alone or among others, or the comparison of a type with it."""
    above = module.parents.get(node)
    asked = node if not isinstance(above, (ast.Tuple, ast.List, ast.Set)) else above
    question = module.parents.get(asked)
    if isinstance(question, ast.Call):
        named = isinstance(question.func, ast.Name) and question.func.id == "isinstance"
        return question if named and question.args[1:] == [asked] else None
    if not isinstance(question, ast.Compare) or len(question.ops) > 1:
        return None
    each = (ast.In, ast.NotIn) if asked is above else (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
    other = question.comparators[0] if asked is question.left else question.left
    if not isinstance(question.ops[0], each) or (asked is above and asked is question.left):
        return None
    return question if _is_type(other) else None


def choice_of_inner(module: Module, node: ast.AST) -> ast.IfExp | None:
    """`x.optimizer if isinstance(x, FP16_Optimizer) else x`, the optimizer that steps, of the class that stands there."""
    question = asks_class(module, node)
    choice = module.parents.get(question) if question is not None else None
    if not isinstance(question, ast.Call) or not isinstance(choice, ast.IfExp) or choice.test is not question:
        return None
    inner, asked = choice.body, ast.dump(question.args[0])
    if not isinstance(inner, ast.Attribute) or inner.attr != "optimizer" or ast.dump(inner.value) != asked:
        return None
    return choice if ast.dump(choice.orelse) == asked else None


def _asks_for_inner(unit: Unit, site: Site) -> bool:
    """Whether a class is asked for to choose between an optimizer of the unit and what wraps it."""
    choice = choice_of_inner(site.module, site.node) if site.call is None else None
    return choice is not None and unit.project.slot(site.module, choice.orelse) in unit.optimizer_slots


def _is_type(node: ast.expr) -> bool:
    """Whether an expression is the class of something: `type(x)`, `x.__class__`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "type" and len(node.args) == 1
    return isinstance(node, ast.Attribute) and node.attr == "__class__"


def is_legacy_call(site: Site) -> bool:
    return site.name == "apex.amp.init" or (site.short == "FP16_Optimizer" and site.name.startswith("apex."))


def _not_called(project: Project, site: Site) -> Unit:
    failure = Blocked.at(
        site,
        "AMP707",
        f"{site.short} is subclassed, compared or passed on rather than called: what depends on it is yours to rewrite",
    )
    return Unit(project, sites=[site], unreadable=[failure])


# -- amp.init ----------------------------------------------------------------------------------------------------------


def _read_handle(project: Project, site: Site) -> LegacyInit:
    call = site.call
    assert call is not None
    module = site.module
    names = ("enabled", "loss_scale", "enable_caching", "verbose", "allow_banned")
    arguments = {n: v for n, v in ((n, argument(call, i, n)) for i, n in enumerate(names)) if v is not None}
    parent = module.parents.get(call)
    if isinstance(parent, ast.IfExp) and parent.body is call:
        if availability(project, module).value(parent.test) is None:
            if "enabled" in arguments:
                raise Blocked.at(site, "AMP711", "enabled= and a condition around it decide together; write one")
            arguments["enabled"] = parent.test
        parent = module.parents.get(parent)
    targets = list(parent.targets) if isinstance(parent, ast.Assign) else []
    if isinstance(parent, ast.AnnAssign):
        targets = [parent.target]
    if not targets and not isinstance(parent, (ast.Expr, ast.Return)):
        raise Blocked.at(site, "AMP711", "the handle is not simply assigned: assign it to a name")
    return LegacyInit(project, site, call, arguments, [], [], handles=targets, calls=[call])


def _follow_handle(unit: Unit) -> None:
    """Find what is done with the handle, and with the optimizers it wraps."""
    wrapped: set[Slot] = set()
    project = unit.project
    for module, node in _attributes(project, unit.handle_slots):
        site = Site(module, node, HANDLE + node.attr)
        if node.attr == "scale_loss":
            optimizer = site.argument(1, "optimizer")
            unit.losses.append(_read_loss(site, [optimizer] if optimizer is not None else []))
            continue
        unit.sites.append(site)
        if node.attr == "wrap_optimizer" and site.call is not None:
            stmt = site.stmt
            targets = stmt.targets if isinstance(stmt, ast.Assign) else []
            wrapped |= project.reaches(project.slots(module, targets))
    for module, node in _attributes(project, wrapped):
        if node.attr == "scale_loss":
            unit.losses.append(_read_loss(Site(module, node, HANDLE + node.attr), [node.value]))


def _read_loss(site: Site, optimizers: list[ast.expr]) -> Loss:
    if (loss := read_loss(site, optimizers)) is None:
        raise Blocked.at(site, "AMP202", "scale_loss is not used in a with statement")
    return loss


# -- FP16_Optimizer ----------------------------------------------------------------------------------------------------


def _grouped(sites: list[Site]) -> Iterator[list[Site]]:
    """Each call alone, or two that stand in the branches of one `if` and wrap the same optimizer."""
    used: set[Site] = set()
    for site in sites:
        if site in used:
            continue
        partner = next((s for s in sites if s not in used and s is not site and _chosen(site, s) is not None), None)
        used |= {site, partner} if partner is not None else {site}
        yield [site, partner] if partner is not None else [site]


def _chosen(one: Site, two: Site) -> ast.If | None:
    """The `if` whose branches hold the two calls."""
    module = one.module
    parent = module.parents.get(one.stmt)
    if two.module is not module or not isinstance(parent, ast.If) or "init" in (one.short, two.short):
        return None
    if not (one.stmt in parent.body and two.stmt in parent.orelse):
        return None
    if not isinstance(one.stmt, ast.Assign) or not isinstance(two.stmt, ast.Assign):
        return None
    targets = [ast.dump(t) for t in one.stmt.targets], [ast.dump(t) for t in two.stmt.targets]
    optimizers = [ast.dump(w) for s in (one, two) if (w := s.argument(0, "init_optimizer")) is not None]
    return parent if targets[0] == targets[1] and len(optimizers) == 2 and optimizers[0] == optimizers[1] else None


def _read_wrapper(project: Project, group: list[Site]) -> LegacyInit:
    site = group[0]
    call = site.call
    assert call is not None
    optimizer = site.argument(0, "init_optimizer")
    if optimizer is None or any(k.arg is None for k in call.keywords):
        raise Blocked.at(site, "AMP707", "the arguments of FP16_Optimizer are not in sight; write them out")
    choice = _chosen(group[0], group[1]) if len(group) == 2 else None
    scale = read_scale(project, group, choice)
    stmt = site.stmt
    targets = list(stmt.targets) if isinstance(stmt, ast.Assign) and stmt.value is call else []
    arguments = {"optimizers": optimizer}
    arguments.update(scale.limits)
    init = LegacyInit(project, site, call, arguments, [], targets, scale=scale, choice=choice)
    init.calls = [s.call for s in group if s.call is not None]
    return init


def _follow_wrapper(unit: Unit) -> None:
    """Find what is done with the wrapped optimizer that a plain one cannot do."""
    for module, node in _attributes(unit.project, unit.optimizer_slots):
        if node.attr not in WRAPPER_ATTRIBUTES:
            continue
        site = Site(module, node, WRAPPER + node.attr)
        if node.attr != "backward":
            if not _not_yet_wrapped(unit, site):
                unit.sites.append(site)
            continue
        loss = site.argument(0, "loss")
        stmt = module.statement(node)
        if site.call is None or loss is None or not (isinstance(stmt, ast.Expr) and stmt.value is site.call):
            raise Blocked.at(site, "AMP707", "backward is not simply called with the loss")
        unit.losses.append(Loss(site, site.call, stmt, None, loss, [node.value], None))


def _not_yet_wrapped(unit: Unit, site: Site) -> bool:
    """The optimizer's state loaded above the call that wraps it: it was a plain one's."""
    above = all(i.site.scope is site.scope and site.node.lineno < i.call.lineno for i in unit.inits)
    return above and site.short in ("state_dict", "load_state_dict")


# -- both --------------------------------------------------------------------------------------------------------------


def _joined(units: list[Unit], by: str) -> list[Unit]:
    """Units whose handle or optimizer may be the same object, or that one function or class sets up, are one."""
    joined: list[Unit] = []
    for unit in units:
        for other in joined:
            if getattr(unit, by) & getattr(other, by) or _beside(unit, other):
                other.inits += unit.inits
                other.sites += unit.sites
                other.forget()
                break
        else:
            joined.append(unit)
    return joined


def _beside(one: Unit, two: Unit) -> bool:
    a, b = one.inits[0].site.scope, two.inits[0].site.scope
    return a is b or (a.owner_class is not None and a.owner_class is b.owner_class)


def _follow(unit: Unit) -> None:
    if not unit.inits[0].optimizers:
        _follow_handle(unit)
    else:
        _follow_wrapper(unit)
    unit.forget()


def _attributes(project: Project, slots: set[Slot]) -> Iterator[tuple[Module, ast.Attribute]]:
    """Attributes read or set on what lives in one of the slots, in source order."""
    names = {s.name for s in slots}
    for module in project.modules:
        if not any(name in module.text for name in names if not name.startswith(("return", "#", "["))):
            continue
        found = [n for n in walk(module.tree) if isinstance(n, ast.Attribute)]
        for node in sorted(found, key=lambda n: (n.lineno, n.col_offset)):
            if project.slot(module, node.value) in slots:
                yield module, node


def _belongs(unit: Unit, units: list[Unit], site: Site) -> bool:
    """Whether a model made half is one of this unit's: the only one, or the one set up nearest to it; a program that never
    calls what sets up has models of its own."""
    if not unit.inits[0].optimizers or site.module not in unit.cast:
        return False
    others = [u for u in units if u.inits[0].optimizers]
    near = [u for u in others if any(i.module is site.module for i in u.inits)] or others
    return near[0] is unit
