"""`--partial`: what of a unit is migrated although the rest of it cannot be. No construct of its own.

A loss and the steps of its optimizers stand or fall together, and so does what is asked of these optimizers: gradients
that one of the two has scaled mean nothing to the other. What is left gets a finding and a comment in the code.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from amp_migrate.findings import Code
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.unit import Blocked, Loss, Step, Unit
from amp_migrate.rules.migration import Migration

CODES: tuple[Code, ...] = ()

MARK = "# amp-migrate:"
WIDTH = 110

Part = Loss | Step | Site


@dataclass(frozen=True)
class Left:
    """Parts of a unit that stay with Apex, and what was in the way."""

    cause: Blocked
    parts: tuple[Part, ...]


def without(unit: Unit, failure: Blocked) -> tuple[Unit, Left] | None:
    """A unit less what stood in the way of its migration; None where no loss would be left, or no `initialize`."""
    if not unit.losses or not unit.inits or any(isinstance(i, LegacyInit) for i in unit.inits):
        return None
    blocked = _blocked(unit, failure)
    losses = [p for p in blocked if isinstance(p, Loss)]
    if not losses and not any(isinstance(p, Site) for p in blocked):
        losses = [x for x in unit.losses if _slots(unit, x) & _steps_slots(unit, blocked)]
    kept = [x for x in unit.losses if x not in losses]
    ours, theirs = (_around(unit, group) for group in (losses, kept))
    if not kept or not blocked or ours & theirs:
        return None
    steps = [s for s in unit.steps if s in blocked or unit.project.slot(s.module, s.optimizer) in ours]
    sites = [s for s in unit.sites if s in blocked or _optimizers(unit, s) & ours]
    if any(s.name == "apex.amp.initialize" for s in sites):
        return None
    rest = replace(
        unit,
        losses=kept,
        sites=[s for s in unit.sites if s not in sites],
        handed=unit.handed,
        uncast=unit.uncast,
        mended=unit.mended,
        run=unit.run,
        left=unit.left | {s.call for s in steps},
    )
    return rest, Left(failure, (*losses, *steps, *sites))


def mark(m: Migration, left: Sequence[Left]) -> None:
    """Report every part that stays, and say so above its statement."""
    for group in left:
        cause = group.cause
        m.output.manual(cause.module, cause.node, cause.code, cause.construct, cause.message)
        _comment(m, cause.module, cause.node, f"{cause.code} {cause.message}")
        for part in group.parts:
            node, code, construct = _described(part)
            if node is not cause.node:
                m.output.waits(part.module, node, code, construct, cause)
                _comment(m, part.module, node, f"{code} stays with Apex until what {cause.code} marks is migrated")


def _comment(m: Migration, module: Module, node: ast.AST, text: str) -> None:
    stmt = module.statement(node)
    above = module.lines[stmt.lineno - 2].decode().strip() if stmt.lineno > 1 else ""
    if above.startswith(MARK):
        return
    rows = textwrap.wrap(f"{MARK} {text}", WIDTH - stmt.col_offset, subsequent_indent="#   ")
    if stmt not in m.edit(module).comments:
        m.edit(module).comments[stmt] = rows


def _described(part: Part) -> tuple[ast.AST, str, str]:
    if isinstance(part, Loss):
        return part.call, "AMP201", part.site.construct
    if isinstance(part, Step):
        return part.call, "AMP210", "optimizer.step"
    return part.call or part.node, "AMP102", part.construct


# -- what belongs together -------------------------------------------------------------------------------------------


def _blocked(unit: Unit, failure: Blocked) -> list[Part]:
    """The parts of a unit that a failure is about; those of the same function where it is about something else."""
    parts: list[Part] = [*unit.losses, *unit.steps, *unit.sites]
    mine = [p for p in parts if p.module is failure.module and _touches(p, failure.node)]
    if mine or not isinstance(failure.node, (ast.expr, ast.stmt)):
        return mine
    scope = failure.module.scope_of(failure.node)
    return [p for p in parts if not isinstance(p, Site) and p.module is failure.module and _scope(p) is scope]


def _touches(part: Part, node: ast.AST) -> bool:
    holder = part.with_stmt if isinstance(part, Loss) else _described(part)[0]
    return node is holder or holder in part.module.ancestors(node) or node in part.module.ancestors(_described(part)[0])


def _scope(part: Loss | Step) -> object:
    return part.site.scope if isinstance(part, Loss) else part.scope


def _slots(unit: Unit, loss: Loss) -> set[Slot]:
    return {s for node in loss.optimizers for s in unit.project.sources(loss.module, node)}


def _steps_slots(unit: Unit, parts: Iterable[Part]) -> set[Slot]:
    steps = (p for p in parts if isinstance(p, Step))
    return unit.project.origins({slot for p in steps for slot in unit.project.slots(p.module, [p.optimizer])})


def _around(unit: Unit, losses: Iterable[Loss]) -> set[Slot]:
    """Everywhere the optimizers of some losses may be."""
    own = {s for loss in losses for s in _slots(unit, loss)}
    return unit.project.reaches(own | unit.project.origins(own))


def _optimizers(unit: Unit, site: Site) -> set[Slot]:
    optimizer = site.argument(0, "optimizer") if site.short == "master_params" else None
    return set(unit.project.sources(site.module, optimizer)) if optimizer is not None else set()
