"""`trainer.amp = amp`: an object that carried Apex carries the scaler; where it held None until then, a disabled one.
A call that is handed amp and has no parameter for it raises as it did.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import ClassInfo, Function, is_none
from amp_migrate.reading.program.given_values import alternatives
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.modules_held import KEPT
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.scaler.amp_kept import assigned, takes_over
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.state.keys import new_key

CODES: tuple[Code, ...] = ()


def apply(m: Migration) -> None:
    for plan in m.scalers:
        plan.key = partial(new_key, m)
    for site in m.unit.sites:
        if m.scales and site.name == "apex.amp" and (function := _without_place(m.project, site)) is not None:
            call = site.module.parents[site.node]
            assert isinstance(call, ast.Call)
            m.edit(site.module).replace(site.node, m.scaler_at(site.module, site.node))
            m.output.note(
                site.module,
                site.node,
                "AMP102",
                site.construct,
                f"{function.name} takes {len(function.positional)} arguments and is given {len(call.args)}: this call raises "
                "a TypeError, as it did with amp; see what it was meant to save or do with the scaler",
                "review",
            )
            continue
        if not isinstance(site.stmt, ast.Assign):
            continue
        target = site.stmt.targets[0]
        if site.name == "apex.amp" and m.scales and _kept_there(m, site):
            continue
        if site.stmt.value is not site.node:
            continue
        if site.name in KEPT:
            m.edit(site.module).delete(site.stmt)
            m.output.done(site.module, site.node, "AMP110", site.construct, "nothing is called by this name any more")
            if isinstance(target, ast.Attribute):
                for module, node in _placeholders(m.project, target.attr):
                    m.edit(module).delete(node)
            continue
        if site.name != "apex.amp":
            continue
        if isinstance(target, ast.Name):
            if m.scales and takes_over(m.project, site.module, target):
                continue  # the scaler, from where amp came
            m.edit(site.module).delete(site.stmt)
            m.output.done(
                site.module, site.node, "AMP110", "apex.amp", "nothing is called through it any more", "as-is"
            )
        elif isinstance(target, ast.Attribute):
            m.edit(site.module).delete(site.stmt)
            m.output.done(site.module, site.node, "AMP110", "apex.amp", "the scaler is kept where amp was", "as-is")
            if m.scales and len(m.scalers) == 1:
                _without(m, target.attr)


def _kept_there(m: Migration, site: Site) -> bool:
    """Keep the scaler where a method keeps the module that its object was given."""
    plan, module, stmt = m.scaler, site.module, site.stmt
    pairs = (p for p in assigned(stmt) if any(v is site.node for v in alternatives(p[1])))
    target, value = next(pairs, (None, site.node))
    place = plan.place_of(module, target) if target is not None else None
    cls = m.project.class_of(site.scope)
    if place is None or cls is None or not isinstance(target, ast.Attribute):
        return False
    name, scaler = place
    if stmt.value is value:  # type: ignore[attr-defined]
        around = module.parents.get(stmt)
        alone = isinstance(around, ast.If) and around.body == [stmt] and not around.orelse
        if alone and not _placeholder(m, cls, target.attr):
            stmt = around  # type: ignore[assignment]  # a scaler that is off does no harm, and is asked for in all runs
        m.edit(module).replace(stmt, f"{name} = {scaler}")
    else:
        m.edit(module).replace(target, name)
        m.edit(module).replace(value, scaler)
    m.output.done(module, site.node, "AMP110", "apex.amp", "the scaler is kept where amp was", "as-is")
    _without(m, target.attr)
    return True


def _placeholder(m: Migration, cls: ClassInfo, name: str) -> bool:
    """Whether objects of a class hold something else in a field until they are given the module."""
    stored = (n for member in cls.ancestry() for f in member.methods.values() for n in f.inside)
    pairs = (p for n in stored for p in assigned(n))
    return any(isinstance(t, ast.Attribute) and t.attr == name and is_none(v) for t, v in pairs)


def _placeholders(project: Project, attribute: str) -> Iterator[tuple[Module, ast.stmt]]:
    """Where a field that is to hold a function of Apex's, and nothing else, is None until then."""
    for module in project.modules if project.module_attributes.get(attribute) in KEPT else ():
        for node in module.of(ast.Assign):
            target = node.targets[0] if len(node.targets) == 1 else None
            if isinstance(target, ast.Attribute) and target.attr == attribute and module.qualify(node.value) is None:
                yield module, node


def _without_place(project: Project, site: Site) -> Function | None:
    """The function that a call hands the module to, where it has no parameter for it."""
    call = site.module.parents.get(site.node)
    functions = project.resolved.get(call, []) if isinstance(call, ast.Call) else []
    if not isinstance(call, ast.Call) or len(functions) != 1 or site.node not in call.args:
        return None
    (function,) = functions
    if function.node.args.vararg is not None or call.args.index(site.node) < len(function.positional):
        return None
    return function


def _without(m: Migration, name: str) -> None:
    """`self.amp = None` in a class that carries the scaler: it is there from the beginning, and does nothing."""
    for cls in m.project.classes.values():
        if not m.scaler.keeps(cls):
            continue
        module = cls.module
        for node in walk(cls.node):
            if isinstance(node, ast.Assign) and is_none(node.value):
                target = node.targets[0]
                if isinstance(target, ast.Attribute) and target.attr == name and module.is_self(target.value):
                    if _beside_initialize(m, module, node):
                        m.edit(module).delete(node)
                        continue
                    scaler = m.scaler_off(module, module.scope_of(node))
                    m.edit(module).replace(node, (target.value, f".{m.scaler.base_name} = {scaler}"))
                    m.until_then.append((module, node, module.source(target.value)))
                    m.output.done(
                        module, node, "AMP110", "apex.amp", "a disabled scaler, as None stood for no Apex", "look"
                    )


def _beside_initialize(m: Migration, module: Module, node: ast.stmt) -> bool:
    """Whether a statement is what is done instead of an `initialize`: the scaler made there is off where that is."""
    parent = module.parents[node]
    beside = parent.body if isinstance(parent, ast.If) and node in parent.orelse else []
    return any(i.stmt in walk(stmt) for stmt in beside for i in m.unit.inits if i.module is module)
