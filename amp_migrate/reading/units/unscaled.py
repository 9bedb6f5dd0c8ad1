"""Units in which no loss is scaled: nothing in sight steps their optimizers, or plain backwards come before the steps."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amp_migrate.reading.program.definitions import ClassInfo, Function, called_name
from amp_migrate.reading.program.logic import LOOKING
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.tree import method_called, reached
from amp_migrate.reading.sites.apex import Site, find_sites
from amp_migrate.reading.sites.casts import is_cast
from amp_migrate.reading.sites.unbound import unbound
from amp_migrate.reading.units.calls import Init

if TYPE_CHECKING:
    from amp_migrate.reading.units.unit import Unit

# Opt levels that leave weights and optimizers as they are, and the arguments that would have them changed all the same.
CASTING = frozenset(("O0", "O1"))
NOT_SCALING = ("apex.amp.master_params", "torch.")  # what is given an optimizer and scales no loss for it
READ = frozenset("param_groups defaults state state_dict load_state_dict zero_grad add_param_group".split())
ROOTS = ("object", "ABC", "abc.ABC")
CHANGING = ("cast_model_type", "master_weights", "patch_torch_functions")


@dataclass(eq=False)
class PlainLoss:
    """A loss whose backward nothing scales: `loss.backward()`."""

    module: Module
    call: ast.Call
    loss: ast.expr

    @property
    def with_stmt(self) -> ast.stmt:
        """The statement that holds the backward."""
        return self.module.statement(self.call)


def plain_losses(unit: Unit) -> list[PlainLoss]:
    """The losses of the backwards before the steps of a unit, where all that Apex does for it is to cast: none where its opt
    level may be one that changes weights, or where something in the program scales a loss, or something out of sight may. Where
    Apex was given a model alone, those of the functions that run it."""
    if unit.losses or not all(_only_casts(init) for init in unit.inits) or _handed_out_of_sight(unit):
        return []
    scopes = {s.scope for s in unit.steps} if any(i.optimizers for i in unit.inits) else set(_running(unit))
    for module in unit.reach:
        if unit.project.may_name_apex(module):
            if any(s.name == "apex.amp.scale_loss" for s in find_sites(unit.project, module)):
                return []
            if any(True for _ in unbound(unit.project, module)):
                return []
    found = [*dict.fromkeys(scopes)] if not unit.steps else _run_before(unit, scopes)
    losses = (x for scope in found for x in _backwards(scope) if not unit.comes_before(x.module, x.call))
    return sorted(losses, key=lambda x: (x.module.display, x.call.lineno, x.call.col_offset))


def _run_before(unit: Unit, stepping: Iterable[Scope]) -> list[Scope]:
    """The functions that run the backwards before steps: those that step, or what calls these, `optimizer.step()` of a class
    that keeps one of torch's; none where some do not."""

    def callers(scope: Scope) -> list[Scope]:
        function = unit.project.functions.get(scope.node)
        calls = unit.project.calls.get(function, ()) if function is not None else ()
        return [module.scope_of(call) for module, call in calls] if not any(_backwards(scope)) else []

    found = list(reached(stepping, callers))
    running = [scope for scope in found if any(_backwards(scope))]
    return running if all(scope in running or callers(scope) for scope in found) else []


def _running(unit: Unit) -> Iterator[Scope]:
    """The functions that run a model of the unit themselves, once it may be prepared."""
    prepared = (unit.project.slots(i.module, i.model_targets or i.models) for i in unit.inits)
    models = unit.project.reaches(set().union(*prepared))
    for module in unit.reach:
        for call, scope in module.calls_naming({s.name for s in models}):
            if unit.project.slot(module, call.func) in models and not unit.comes_before(module, call):
                yield scope


def _only_casts(init: Init) -> bool:
    return type(init) is Init and init.levels <= CASTING and init.arguments.keys().isdisjoint(CHANGING)


def _backwards(scope: Scope) -> Iterator[PlainLoss]:
    """The backwards that a function runs itself."""
    for call, where in scope.module.calls:
        if where is scope and method_called(call) == "backward" and not call.args:
            assert isinstance(call.func, ast.Attribute)
            yield PlainLoss(scope.module, call, call.func.value)


def never_steps(unit: Unit) -> bool:
    """Whether the optimizers handed to Apex are only made: nothing in sight steps them, and nothing out of sight is
    given them but schedulers."""
    kept = [(s.holder, s.name) for s in unit.optimizer_slots if isinstance(s.holder, ClassInfo)]
    others = any(not is_cast(s) and not only_asks(s) and not _only_loads(s) for s in unit.sites)
    if unit.steps or others or not all(_only_reads(unit, *k) for k in kept) or _handed_out_of_sight(unit):
        return False
    given_back = {s.holder for s in unit.optimizer_slots if isinstance(s.holder, Function)}
    return all(unit.project.calls.get(function) for function in given_back)


def _only_reads(unit: Unit, cls: ClassInfo, field: str) -> bool:
    """Whether an object that keeps an optimizer is a scheduler, by its name or by what is done with the field: its groups and
    its state are read, and functions in sight are given it."""
    if is_scheduler(cls.name):
        return True
    if any(len(c.bases) < len([b for b in c.base_names if b not in ROOTS]) for c in cls.ancestry()):
        return False  # a base out of sight may step what is kept for it
    for module in unit.reach:
        for node in module.named.get(field, ()):
            user = module.parents.get(node)
            if isinstance(node, ast.Constant):
                reads = not (isinstance(user, ast.Call) and called_name(user) == "getattr")
            elif isinstance(user, ast.Attribute):
                reads = user.attr in READ
            elif isinstance(user, ast.Call):
                reads = user.func is not node and bool(unit.project.resolved.get(user))
            else:
                reads = isinstance(user, (ast.If, ast.IfExp, ast.Compare, ast.UnaryOp))
            if not reads:
                return False
    return True


def _handed_out_of_sight(unit: Unit) -> bool:
    """Whether something out of sight is given an optimizer, and is no scheduler."""
    inits = {i.call for i in unit.inits}
    holders = (s.holder for s in unit.optimizer_slots)
    modules = {h.module for h in holders if isinstance(h, (Scope, ClassInfo))}
    for module in modules:
        for call, scope in module.calls:
            owner = scope.owner_class
            called = ast.unparse(call.func)
            if call in inits or unit.project.resolved.get(call) or called in LOOKING:
                continue
            if is_scheduler(called) or (owner is not None and is_scheduler(owner.name)):
                continue
            if (unit.project.qualify(module, call.func) or "").startswith(NOT_SCALING):
                continue
            given = {unit.project.slot(module, a) for a in _values(call)}
            if given & unit.optimizer_slots:
                return True
    return False


def is_scheduler(name: str) -> bool:
    """Whether something is named as schedulers are: these read an optimizer and set its rates, but do not step it."""
    return "LR" in name or "sched" in name.lower()


def _values(call: ast.Call) -> Iterator[ast.expr]:
    """The arguments of a call that are names or attributes."""
    for value in (*call.args, *(k.value for k in call.keywords)):
        if isinstance(value, (ast.Name, ast.Attribute)):
            yield value


def _only_loads(site: Site) -> bool:
    """Whether Apex's state is only taken over: of losses that nothing scales."""
    return site.name == "apex.amp.load_state_dict" and site.call is not None


def only_asks(site: Site) -> bool:
    """Whether Apex's module is only asked for: `if amp:`, `amp is not None`."""
    asker = site.module.parents.get(site.node)
    if site.name not in ("apex", "apex.amp"):
        return False
    if isinstance(asker, (ast.If, ast.IfExp, ast.Assert)):
        return asker.test is site.node
    return isinstance(asker, ast.Compare) or (isinstance(asker, ast.UnaryOp) and isinstance(asker.op, ast.Not))
