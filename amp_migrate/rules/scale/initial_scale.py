"""Settings of Apex's loss scaler that a program assigns right after `initialize`: arguments of the GradScaler."""

from __future__ import annotations

import ast

from amp_migrate.reading.program.module import LOOP_NODES
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.unit import Init
from amp_migrate.rules.migration import Migration


def initial_setting(m: Migration, init: Init, name: str, plan: ScalerPlan) -> ast.Assign | None:
    """The assignment that gives a private attribute of Apex's scaler, for which a GradScaler stands, its first value."""
    for site in m.unit.sites:
        stmt = site.stmt
        if (
            isinstance(stmt, ast.Assign)
            and isinstance(stmt.targets[0], ast.Attribute)
            and stmt.targets[0].attr == name
            and site.scope is init.site.scope
            and m.plan_of_loss(_index(stmt.targets[0].value)) is plan
            and _follows(m, site, init)
        ):
            return stmt
    return None


def _index(node: ast.expr) -> ast.expr | None:
    """Which of `_amp_state.loss_scalers[i]` it is."""
    return node.slice if isinstance(node, ast.Subscript) else None


def _follows(m: Migration, site: Site, init: Init) -> bool:
    """Whether a statement always runs once after `initialize`, before anything is scaled."""
    module, stmt = site.module, site.stmt
    if stmt.lineno < init.stmt.lineno or _holders(site) - _holders(init.site) - _same_switch(site, init):
        return False
    return not any(
        loss.module is module
        and module.scope_of(loss.call) is site.scope
        and init.stmt.lineno < loss.call.lineno < stmt.lineno
        for loss in m.unit.losses
    )


def _holders(site: Site) -> set[ast.AST]:
    """The loops and conditions around a site."""
    return {a for a in site.module.ancestors(site.node) if isinstance(a, (*LOOP_NODES, ast.If, ast.Try))}


def _same_switch(site: Site, init: Init) -> set[ast.AST]:
    """Conditions around a site that ask what a condition around `initialize` asks."""
    asked = {ast.dump(a.test) for a in _holders(init.site) if isinstance(a, ast.If)}
    return {a for a in _holders(site) if isinstance(a, ast.If) and not a.orelse and ast.dump(a.test) in asked}
