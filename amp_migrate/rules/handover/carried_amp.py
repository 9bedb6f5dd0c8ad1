"""`trainer.amp = amp`: an object that carried Apex carries the scaler; where it held None until then, a disabled one.
A call that is handed amp and has no parameter for it raises as it did.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import Function, is_none
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.modules_held import KEPT
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.migration import Migration

CODES: tuple[Code, ...] = ()


def apply(m: Migration) -> None:
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
        if not isinstance(site.stmt, ast.Assign) or site.stmt.value is not site.node:
            continue
        target = site.stmt.targets[0]
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
            m.edit(site.module).delete(site.stmt)
            m.output.done(
                site.module, site.node, "AMP110", "apex.amp", "nothing is called through it any more", "as-is"
            )
        elif isinstance(target, ast.Attribute):
            m.edit(site.module).delete(site.stmt)
            m.output.done(site.module, site.node, "AMP110", "apex.amp", "the scaler is kept where amp was", "as-is")
            if m.scales and len(m.scalers) == 1:
                _without(m, target.attr)


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
                    m.output.done(module, node, "AMP110", "apex.amp", "a disabled scaler until then", "look")


def _beside_initialize(m: Migration, module: Module, node: ast.stmt) -> bool:
    """Whether a statement is what is done instead of an `initialize`: the scaler made there is off where that is."""
    parent = module.parents[node]
    beside = parent.body if isinstance(parent, ast.If) and node in parent.orelse else []
    return any(i.stmt in walk(stmt) for stmt in beside for i in m.unit.inits if i.module is module)
