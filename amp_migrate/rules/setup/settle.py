"""The frame of a unit's migration: decide where the scaler lives, fold the branches that die. No construct of its own."""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.casts import is_cast
from amp_migrate.reading.switch.legacy_folds import WITHOUT_EFFECT
from amp_migrate.reading.units.legacy_models import HALVERS
from amp_migrate.reading.units.unit import Blocked, Init
from amp_migrate.rules.migration import Migration

CODES: tuple[Code, ...] = ()

# Sites whose replacement does not mention the scaler.
WITHOUT_SCALER = WITHOUT_EFFECT | HALVERS | {"master_params", "wrap_optimizer", "optimizer", "FP16_Optimizer"}


def apply(m: Migration) -> None:
    """Decide the scaler's homes from everything that will use it."""
    for init in m.unit.inits:
        _refuse_bound(init)
    uses: list[tuple[Module, ast.AST]] = []
    for loss in m.unit.losses:
        uses.append((loss.module, loss.with_stmt))
    for step in m.unit.steps:
        uses.append((step.module, step.call))
    for site in m.unit.sites:
        if site.short not in WITHOUT_SCALER and not is_cast(site):
            uses.append((site.module, site.node))
    if m.scales:
        for plan in m.scalers:
            plan.settle(uses)


def _refuse_bound(init: Init) -> None:
    """Refuse a switch that binds a name as it is asked: what the scaler is created with would have to ask it again."""
    tests = [a.test for a in init.module.ancestors(init.call) if isinstance(a, ast.If)]
    for node in (n for asked in (*tests, *init.arguments.values()) for n in walk(asked)):
        if isinstance(node, ast.NamedExpr) and init.module.scope_of(node) is init.site.scope:
            name = node.target.id
            message = (
                f"whether mixed precision is on is asked where {name} is bound: bind it on a line of its own above"
            )
            raise Blocked.at(init.site, "AMP113", message)


def folds(m: Migration) -> None:
    """Splice the branches that stay into place."""
    for module, folded in m.folds.items():
        for stmt in folded.apart:
            m.edit(module).delete(stmt)
        for stmt, branch in folded.splices.items():
            if stmt in m.pairs:
                m.edit(module).splice(stmt, "body" if branch == "body" else "orelse")
                if not m.output.edits[module]:
                    del m.output.edits[module]
