"""To which set-up a wrapper of a model or an optimizer of Apex's belongs: where that stays with Apex, so does what is for it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from amp_migrate.findings import Cause
from amp_migrate.reading.program.lookup import Slot
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.units.unit import Unit
from amp_migrate.rules.output import Output
from amp_migrate.rules.parts import larc, optimizers, parallel, syncbn
from amp_migrate.rules.parts.counterpart import Manual, Native

OF_A_UNIT = frozenset({parallel.DDP, *syncbn.NAMES, *optimizers.NAMES, *larc.NAMES})


def waiting(
    project: Project, decided: Mapping[Site, Native | Manual], ignored: Collection[Site], output: Output
) -> list[Site]:
    """The sites, less those that stay anyway, that wait for a unit, which is told of each."""
    found: list[Site] = []
    for site, decision in decided.items():
        if site.name in OF_A_UNIT and site not in ignored and isinstance(decision, Native):
            if (cause := _awaited(project, site, output)) is not None:
                output.waits_for(site.module, site.call or site.node, decision.code, site.construct, cause)
                found.append(site)
    return found


def _awaited(project: Project, site: Site, output: Output) -> Cause | None:
    """What a site waits for whose unit is refused: it is given what that prepares, makes it, or stands where that is set up. Not
    where another unit that is migrated needs it, too."""
    if not output.refused:
        return None
    slots = _slots(project, site)
    if any(_is_of(unit, site, slots) for unit in output.carried):
        return None
    return next((cause for unit, cause in output.refused if _is_of(unit, site, slots)), None)


def _is_of(unit: Unit, site: Site, slots: set[Slot]) -> bool:
    beside = any(init.site.scope is site.scope for init in unit.inits)
    return beside or not slots.isdisjoint(unit.model_slots | unit.optimizer_slots)


def _slots(project: Project, site: Site) -> set[Slot]:
    """Where what a call is given lives, and wherever what it gives may come."""
    call, module = site.call, site.module
    if call is None:
        return set()
    user = module.parents.get(call)
    function = project.function_of(module, call)
    given = project.slots(module, user.targets) if isinstance(user, ast.Assign) else set()
    if isinstance(user, ast.Return) and function is not None:
        given.add(Slot(function, "return"))
    return project.reaches(given) | project.slots(module, [*call.args, *(k.value for k in call.keywords)])
