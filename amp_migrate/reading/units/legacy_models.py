"""The models of a unit of the older APIs, which do not name them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.program.unseen import evaluates_unseen
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.sites.half_casts import cast_to_half, casts_nothing
from amp_migrate.reading.units.run_apart import run_apart
from amp_migrate.reading.units.telling_names import MODEL_NAMES
from amp_migrate.reading.units.unit import Unit

# Calls that turn a module's weights into float16: of apex.fp16_utils, and the copies of them that programs carry.
HALVERS = frozenset(["network_to_half", "BN_convert_float", "convert_network", "FP16Model", "FP16_Module", "tofp16"])


def seed(unit: Unit) -> None:
    """The models: whatever is used as a torch Module in the files that set up or train, and what it flows to."""
    methods = {"parameters", "named_parameters"} | (set() if unit.inits[0].optimizers else {"eval"})
    project = unit.project
    near = {i.module for i in unit.inits} | {x.module for x in unit.losses}
    seeds: set[Slot] = set()
    for module in project.modules:
        if module not in near:
            seeds |= _halved_for(project, module, near) if unit.inits[0].optimizers else set()
            continue
        for node in walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
                value = node.func.value
                if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)) and not module.is_self(value):
                    seeds |= project.slots(module, [value]) if not run_apart(project, module, value) else set()
            elif isinstance(node, ast.Call) and _named_as_model(module, node.func):
                seeds |= project.slots(module, [node.func]) if not run_apart(project, module, node.func) else set()
            elif (
                isinstance(node, ast.Call) and not unit.inits[0].optimizers and evaluates_unseen(project, module, node)
            ):
                given = [v for v in (*node.args, *(k.value for k in node.keywords)) if _named_as_model(module, v)]
                seeds |= project.slots(module, given)
    seeds |= _handed_on(unit, near, methods) | _stepped(unit, near)
    seeds -= unit.optimizer_slots
    for init in unit.inits:
        init.seeds |= seeds
    for init in unit.inits:
        init.halving = _halving(unit) if init.brings_scale else []
    unit.forget()


def _halving(unit: Unit) -> list[tuple[Module, ast.Call]]:
    """The calls that make the models of a unit half by hand: from there on they run in half precision."""

    def is_model(module: Module, value: ast.expr) -> bool:
        return isinstance(value, (ast.Name, ast.Attribute)) and unit.holds_model(module, value)

    return [
        (module, call)
        for module in unit.modules
        for call, _ in module.calls
        if (
            cast_to_half(module, call)
            and is_model(module, call.func.value)  # type: ignore[attr-defined]
            and not casts_nothing(unit.project, module, call)
        )
        or (called_name(call) in HALVERS and any(is_model(module, a) for a in call.args))
    ]


def is_halved_for_inference(project: Project, site: Site, sites: Sequence[Site]) -> bool:
    """Whether a model is made half, layer by layer, in a program that trains nothing and uses nothing else of what goes with
    it: as `amp.initialize(model)` does, it sets up the casts of a model that is only run."""
    if site.name != "apex.fp16_utils.network_to_half" or site.call is None or len(site.call.args) != 1:
        return False
    near = in_process(project, [site.module])
    if any(".backward(" in module.text or "optimizer.step(" in module.text for module in near):
        return False
    return not any(
        s.module in near and s.name.startswith(("apex.fp16_utils", "apex.amp")) for s in sites if s.short != site.short
    )


def _handed_on(unit: Unit, near: set[Module], methods: set[str]) -> set[Slot]:
    """Models that one of these files only makes and hands to a function of another, which uses it as a torch Module."""
    project = unit.project
    given: set[Slot] = set()
    for module in near:
        for call, _ in module.calls:
            for function in project.resolved.get(call, ()):
                if function.module not in near:
                    given.update(Slot(function.scope, name) for name, _ in project.arguments(function, call))
    reached = project.reaches(given)
    holders = {s.holder for s in reached}
    found: set[Slot] = set()
    for module in unit.reach:
        if module in near or not any(method in module.text for method in methods):
            continue
        for call, scope in module.calls:
            if scope in holders and isinstance(call.func, ast.Attribute) and call.func.attr in methods:
                slot = project.slot(module, call.func.value) if not module.is_self(call.func.value) else None
                found |= {slot} & reached if slot is not None else set()
    return found


def _stepped(unit: Unit, near: set[Module]) -> set[Slot]:
    """Models of other files whose parameters the optimizer was made with there, before one of these files is given it."""
    project = unit.project
    if not unit.inits[0].optimizers:
        return set()
    made = project.origins(unit.optimizer_slots)
    found: set[Slot] = set()
    for module in unit.reach:
        for _, func in module.method_calls.get("parameters", ()) if module not in near else ():
            stmt = module.statement(func)
            taken = (
                project.slots(module, stmt.targets) if isinstance(stmt, ast.Assign) else _taking(project, module, func)
            )
            if not made.isdisjoint(taken):
                found |= project.slots(module, [func.value])
    return found


def _taking(project: Project, module: Module, node: ast.AST) -> set[Slot]:
    """The parameters that are given what an expression is part of: `model.train(loader, Adam(model.parameters()))`."""
    found: set[Slot] = set()
    above = [a for a in module.ancestors(node) if isinstance(a, ast.Call)]
    for call in above:
        for function in project.resolved.get(call, ()):
            given = project.arguments(function, call)
            found |= {Slot(function.scope, name) for name, value in given if value in above and value is not call}
    return found


def _halved_for(project: Project, module: Module, near: set[Module]) -> set[Slot]:
    """Models that a file makes half before it hands them to one of the files that train."""
    if not any(name in module.text for name in HALVERS):
        return set()
    found: set[Slot] = set()
    for call in walk(module.tree):
        if isinstance(call, ast.Call) and called_name(call) in HALVERS and call.args:
            slot = project.slot(module, call.args[0])
            if slot is not None and any(getattr(s.holder, "module", None) in near for s in project.reaches({slot})):
                found.add(slot)
    return found


def _named_as_model(module: Module, func: ast.expr) -> bool:
    """`model(...)`, `self.encoder(...)`: named as models are, and neither imported nor defined under that name."""
    if isinstance(func, ast.Attribute):
        return module.is_self(func.value) and func.attr in MODEL_NAMES
    if not isinstance(func, ast.Name) or func.id not in MODEL_NAMES:
        return False
    owner = module.scope_of(func).lookup(func.id)
    return owner is not None and all(isinstance(b, (ast.Name, ast.arg)) for b in owner.bindings[func.id])
