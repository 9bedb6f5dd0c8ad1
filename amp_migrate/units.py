"""One unit, or one rule of a file, carried out: what it writes is accepted whole, or said to wait."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from amp_migrate.findings import Cause
from amp_migrate.options import Options
from amp_migrate.reading.gradients.divisible import Divided, beside_backward, divisible
from amp_migrate.reading.program.module import Module, Scope
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.scaler.from_users import FromUsers
from amp_migrate.reading.scaler.process_wide import LastHome, last_homes
from amp_migrate.reading.sites.apex import Site
from amp_migrate.reading.twin.sides import find_twin
from amp_migrate.reading.units.unit import AddsToEach, Blocked, ReadsEach, Unit
from amp_migrate.reading.units.unused_keepers import STATES
from amp_migrate.rules import TAKEN_OVER, UNIT_RULES, FileRule, partial
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.output import Output
from amp_migrate.rules.regions import gathered
from amp_migrate.rules.twin import branch as native_branch
from amp_migrate.untaken import refuse, unit_sites, whole
from amp_migrate.writing.edits import Edits

# Why a scaler has no home that an object or a parameter leads to.
OUT_OF_REACH = ("AMP113", "AMP213")


def carry_out(
    unit: Unit,
    targets: set[Module],
    options: Options,
    output: Output,
    taken: Callable[[Scope], bool],
    loose: Sequence[Site],
) -> Mapping[Module, Edits]:
    """Migrate one unit whole, or report why not; what it writes to which files. `taken`: what other units have decided."""
    if not targets & set(unit.modules):
        return {}
    if (cause := _stays_beside(unit, output)) is not None:
        for module, node, code, construct in unit_sites(unit):
            output.waits_for(module, node, code, construct, cause)
        return {}
    twin = find_twin(unit)
    if twin is not None:
        migration = Migration(unit, options)
        try:
            taken_out = native_branch.apply(migration, twin)
        except Blocked as failure:
            return refuse(unit, failure, output)
        if taken_out and not any(m not in targets and e for m, e in migration.output.edits.items()):
            return _take(migration.output, output)
    rest, left = unit, list[partial.Left]()
    homes: list[LastHome] | None = None  # what is left to try where the scaler cannot be handed over
    home: LastHome | None = None
    users: Blocked | None = None  # why a library's unit has no set-up
    early: Blocked | None = None  # why gradients are read divided by the scale
    divided: Divided = {}
    adds = moves = False  # whether what adds to each micro-batch's gradients is multiplied there, or goes to the step
    helpers = frozenset(output.gathered)
    plain: Migration | None = None  # what came of it with a switch for each helper
    inner = frozenset(output.inner)
    around: Migration | None = None  # what came of it with regions around what has one inside
    while True:
        migration = Migration(rest, options, taken, unit, output, home, users, divided, helpers, inner, moves)
        try:
            _run_rules(migration, targets, loose)
            partial.mark(migration, left)
        except Blocked as failure:
            if (before := plain or around) is not None:
                return _take(before.output, output)
            if migration.switch.apart and failure.code in OUT_OF_REACH:
                for init in rest.inits:
                    init.together = True
                continue
            # What cannot be handed the scaler finds it at module level, if nothing else is in the way.
            if homes is None and failure.code in OUT_OF_REACH and migration.scales:
                homes = last_homes(rest, failure)
            if homes and failure is homes[0].failure:
                home = homes.pop(0)
                continue
            if users is None and failure.code == "AMP116" and migration.scales and FromUsers.possible(rest):
                users = failure
                continue
            if failure.code == "AMP307" and migration.scales:
                read = _divisible(migration, failure)
                if not read.keys() <= divided.keys():
                    divided, early = {**divided, **read}, early or failure
                    adds = adds or isinstance(failure, AddsToEach)
                    continue
            if adds and not moves:
                homes, home, users, divided, early, moves = None, None, None, {}, None, True
                continue
            failure = users or early or failure
            homes, home, users, divided, early = None, None, None, {}, None
            smaller = partial.without(rest, failure) if options.partial else None
            if smaller is None:
                return refuse(unit, left[0].cause if left else failure, output)
            rest, more = smaller
            left.append(more)
        except Exception as error:  # a defect of ours must not cost the user's other files
            return refuse(unit, _defect(unit, error), output)
        else:
            if around is None and (found := gathered.inner(migration) - inner):
                around, inner = migration, inner | found
                continue
            if around is not None and gathered.loses(migration, around, inner):
                migration, inner = around, frozenset(output.inner)
            if plain is None and (found := gathered.helpers(migration)):
                plain, helpers = migration, helpers | found
                continue
            if plain is not None and gathered.misses(migration, plain, helpers):
                migration, helpers = plain, frozenset(output.gathered)
            migration.output.gathered |= helpers
            migration.output.inner |= inner
            return _take(migration.output, output)


def _stays_beside(unit: Unit, output: Output) -> Cause | None:
    """Why the state that others of a file save or load stays Apex's, where a unit does no more than that: what one writes, the
    other reads."""
    for module in unit.modules if unit.unused and not unit.losses else ():
        lines = {call.lineno for call, _ in module.calls if module.qualify(call.func) in STATES}
        if (cause := next(output.causes(module, lines), None)) is not None:
            return cause
    return None


def _divisible(migration: Migration, failure: Blocked) -> Divided:
    """What reads gradients where a migration cannot have them unscaled, as far as it can be given the scale instead."""
    reader = migration.gradients
    if isinstance(failure, ReadsEach):
        return {n: m for place in failure.places for n, m in divisible(reader, *place).items()}
    found = divisible(reader, failure.module, failure.node)
    return {} if any(beside_backward(reader, m, n) for n, m in found.items()) else found


def _defect(unit: Unit, error: Exception) -> Exception:
    """What is said of a unit on which a rule itself broke."""
    if os.environ.get("AMP_MIGRATE_DEBUG"):
        traceback.print_exception(error)
    module, node, _, construct = next(iter(unit_sites(unit)))
    return Blocked(
        module,
        node,
        "AMP190",
        construct,
        f"left alone: amp-migrate broke on it ({type(error).__name__}: {error}); please report this",
    )


def _run_rules(migration: Migration, targets: set[Module], loose: Sequence[Site]) -> None:
    """Run the rules of a unit. Raises Blocked where one of them refuses, or the unit reaches beyond the targets."""
    if not any(rule(migration) for rule in TAKEN_OVER):
        for rule in UNIT_RULES:
            rule(migration)
        whole(migration.unit, migration, loose)
    outside = [m for m in migration.output.edits if m not in targets and migration.output.edits[m]]
    if outside:
        where = next(m for m in migration.unit.modules if m in targets)
        names = ", ".join(sorted(m.display for m in outside))
        raise Blocked(where, where.tree, "AMP116", "apex.amp", f"this unit reaches beyond the paths given: add {names}")


def _take(proposed: Output, output: Output) -> Mapping[Module, Edits]:
    """Accept what a unit's rules propose; if a site of it is to be left alone, all of it is."""
    found = [(m, f) for m, findings in proposed.findings.items() for f in findings if f.status == "done"]
    unwanted = [(m, f) for m, f in found if not output.wants(m, f)]
    if not unwanted:
        output.merge(proposed)
        return {module: edits for module, edits in proposed.edits.items() if edits}
    where, cause = unwanted[0]
    why = "" if (where.display, cause.line) in output.refuted else f", where {cause.code} is ignored"
    message = f"left alone with {where.display}:{cause.line}{why}: they are migrated together"
    for module, finding in found:
        if (module, finding) not in unwanted:
            held = Cause(where.display, cause.line, cause.code)
            output.add(module, replace(finding, status="manual", review="review", message=message, cause=held))
    return {}


def file_rule(rule: FileRule, project: Project, module: Module, options: Options, output: Output) -> None:
    """Run a file rule; if it does not look out for the sites to be left alone, all that it does to the file is undone."""
    if not output.wishes.concern(module.display) and not any(p == module.display for p, _ in output.refuted):
        rule(project, module, options, output)
        return

    before, told = output.edit(module).copy(), list(output.findings.get(module, ()))
    rule(project, module, options, output)
    new = [f for f in output.findings.get(module, ()) if f not in told]
    if any(f.status == "done" and not output.wants(module, f) for f in new):
        proposed = Output(findings={module: new})
        output.edits[module], output.findings[module] = before, told
        _take(proposed, output)
