"""The switch: both programs without mixed precision must compute the same, and nothing in half."""

from __future__ import annotations

import math
import shlex

from amp_migrate.verify.drills import arguments
from amp_migrate.verify.drills.findings import Findings
from amp_migrate.verify.drills.planned import SIDES, Known, Planned
from amp_migrate.verify.record import Attempt, Recording
from amp_migrate.verify.recording.spec import Drill
from amp_migrate.verify.thresholds import FULL_PRECISION
from amp_migrate.verify.verdicts import precision, structure

FEW = 6  # steps
LOST = "`enabled=` of an autocast region or of the scaler does not follow the switch"


def plan(known: Known) -> Planned:
    name, case = "switch-off", known.case
    argv = (
        tuple(shlex.split(case.off_args))
        if case.off_args is not None
        else arguments.switched_off(case.argv, arguments.known(case.original))
    )
    if argv is not None:
        specs = {side: known.spec(name, side, FEW, Drill(), argv=argv, census=True) for side in SIDES}
        return Planned(name, specs, how=arguments.shown(argv, case.argv))
    if known.original.opt_level != "O1":
        return Planned(name, because="no argument that switches mixed precision off was found; name it with --off-args")
    specs = {
        "original": known.spec(name, "original", FEW, Drill(off=True), census=True),
        "migrated": known.spec(name, "migrated", FEW, Drill(), full_precision=True),
    }
    return Planned(name, specs, how="O0, autocast and scaler switched off by the tool", forced=True)


def compare(drill: Planned, original: Recording, migrated: Recording) -> Findings | str:
    """Why there is nothing to compare, as a sentence, or what was found."""
    if precision.computes_in_half(original):
        return f"with {drill.how} the original computes in half all the same; name its arguments with --off-args"
    found = Findings()
    told, causes = structure.differences(original, migrated)
    if told:
        found.red(told[0], *causes)
        return found
    if not drill.forced:
        verdict = precision.judge(original, migrated)
        found.evidence += verdict.evidence
        found.causes += [LOST] if verdict.evidence else []
        scaled = [any(b.scaler is not None for a in r.attempts for b in a.backwards) for r in (original, migrated)]
        if scaled == [False, True]:
            found.red("the migrated program scales its loss, the original does not", LOST)
    for before, after in zip(original.attempts, migrated.attempts, strict=False):
        if (difference := _difference(before, after)) is not None:
            found.red(f"step {before.window}: {difference}", "what mixed precision has nothing to do with was changed")
            break
    return found


def _difference(before: Attempt, after: Attempt) -> str | None:
    if before.skipped != after.skipped:
        done = {True: "skipped", False: "taken"}
        return f"{done[after.skipped]}, in the original {done[before.skipped]}"
    for what, one, other in (
        ("loss", before.loss, after.loss),
        ("gradient norm", before.grad_norm, after.grad_norm),
    ):
        if one is None or other is None or not (math.isfinite(one) or math.isfinite(other)):
            continue
        if not abs(one - other) <= FULL_PRECISION * max(abs(one), 1e-12):
            return f"{what} {other:.7g}, in the original {one:.7g}"
    return None
