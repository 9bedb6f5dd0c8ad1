"""Evaluation alone: a process that never trains runs the same forwards, in the same formats, to the same results."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from amp_migrate.verify.drills import arguments
from amp_migrate.verify.drills.findings import Findings
from amp_migrate.verify.drills.planned import SIDES, Known, Planned
from amp_migrate.verify.record import Recording
from amp_migrate.verify.recording.spec import Drill, RunSpec, Side
from amp_migrate.verify.thresholds import BATCH_TOLERANCE
from amp_migrate.verify.verdicts import precision

OUTSIDE = "on the way to evaluation alone no autocast region is entered, or the set-up that training has does not run"


def plan(known: Known) -> Planned:
    name, case = "evaluation", known.case
    argv = (
        tuple(shlex.split(case.eval_args))
        if case.eval_args is not None
        else arguments.evaluating(case.argv, arguments.known(case.original))
    )
    if argv is None:
        return Planned(name, because="no argument that evaluates alone was found; name it with --eval-args")
    if case.nproc > 1:
        return Planned(name, because="not tried with several processes")
    files = _checkpoints(known) if any("{checkpoint}" in word for word in argv) else {}
    if files is None:
        return Planned(name, because="no checkpoint to evaluate was saved within these steps; raise --steps")
    specs: dict[Side, RunSpec] = {}
    for side in SIDES:
        own = tuple(word.replace("{checkpoint}", files.get(side, "")) for word in argv)
        specs[side] = known.spec(name, side, 1, Drill(evaluation=True), argv=own, census=True)
    return Planned(name, specs, how=arguments.shown(argv, case.argv))


def _checkpoints(known: Known) -> dict[Side, str] | None:
    """The original's own checkpoint for both sides, converted for the migrated program."""
    from amp_migrate.checkpoint.files import convert_file
    from amp_migrate.checkpoint.states import CheckpointError

    saved = known.original.save_near(known.case.middle)
    if saved is None:
        return None
    source = Path(saved["kept"])
    if not saved["apex"]:
        return {side: str(source) for side in SIDES}
    target = known.work / f"drill-evaluation{source.suffix}"
    try:
        convert_file(source, target, unsafe_pickle=True)  # written a moment ago, by the program under test
    except CheckpointError:
        return None
    return {"original": str(source), "migrated": str(target)}


def compare(drill: Planned, original: Recording, migrated: Recording) -> Findings | str:
    """Why there is nothing to compare, as a sentence, or what was found."""
    if original.attempts:
        return f"with {drill.how} the original trains; name the arguments with --eval-args"
    if not original.evaluated:
        return f"with {drill.how} the original runs no module"
    found = Findings()
    runs = len(original.evaluated), len(migrated.evaluated)
    if runs[0] != runs[1]:
        found.red(f"{runs[0]} forwards in the original, {runs[1]} in the migrated program", "another path is taken")
        return found
    verdict = precision.judge(original, migrated, drill.dtype)
    found.evidence += verdict.evidence
    found.causes += [OUTSIDE] if verdict.evidence else []
    found.announced += [told for told in verdict.announced if not told.startswith("no evaluation")]
    for number, (before, after) in enumerate(zip(original.evaluated, migrated.evaluated, strict=True)):
        if (told := _difference(before, after)) is not None:
            found.red(f"forward {number} ({before['root']}): {told}", "other weights or other data are evaluated")
            break
    return found


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    if before["root"] != after["root"]:
        return f"{after['root']} runs in its place"
    if before["training"] != after["training"]:
        modes = {True: "training", False: "evaluation"}
        return f"in {modes[after['training']]} mode, in the original in {modes[before['training']]} mode"
    one, other = ([float(v) for v in e["values"]] for e in (before, after))
    if len(one) != len(other):
        return f"{len(other)} tensors come out, in the original {len(one)}"
    for x, y in zip(one, other, strict=True):
        if abs(x - y) > BATCH_TOLERANCE * max(abs(x), abs(y), 1e-6):
            return f"mean magnitude of what comes out {y:.6g}, in the original {x:.6g}"
    return None
