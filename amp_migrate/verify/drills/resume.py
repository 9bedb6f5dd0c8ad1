"""Epochs cut short: what stands behind an epoch, evaluation and saving, and a resume from what was saved.

An overflow before the first save moves the scale away from its start: a scaler that comes back as a new one shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from amp_migrate.verify.drills.findings import Findings
from amp_migrate.verify.drills.planned import SIDES, Known, Planned, iterations, unscaled
from amp_migrate.verify.record import Recording
from amp_migrate.verify.recording.spec import Drill, RunSpec
from amp_migrate.verify.resuming import resumed
from amp_migrate.verify.verdicts import checkpoint, known, precision, structure

EPOCH, EPOCHS = 3, 8  # steps of an epoch, and of the run


def plan(known: Known) -> Planned:
    """Epochs of a few batches, so that what stands behind an epoch runs; before the first ends, an overflow."""
    name, case = "resume", known.case
    if case.nproc > 1:
        return Planned(name, because="not tried with several processes")
    found = iterations(known.original)[1:2]
    batches = EPOCH * (found[0].backwards if found else 1)
    drill = Drill(epoch_batches=batches)
    dynamic = any(s["dynamic"] for s in known.original.scalers.values())
    if found and found[0].scaled and dynamic and unscaled(known) is None:
        struck = found[0]
        drill = replace(drill, overflow_at=struck.first, backward=struck.scaled[-1], optimizers=struck.optimizers)
    options = {"census": True, "keep_save_near": EPOCH, "keep_tree": True}
    specs = {side: known.spec(name, side, EPOCHS, drill, **options) for side in SIDES}

    def then(runs: Mapping[str, Recording]) -> dict[str, RunSpec]:
        more = {}
        for side in SIDES:
            saved = runs[side].save_near(EPOCH)
            if case.resume_args is not None and saved is not None and runs[side].trouble is None:
                folder = known.work / f"drill-resume-{side}-again"
                again = Drill(epoch_batches=batches)
                more[f"{side} again"] = resumed(case, side, folder, saved, saved["kept"], runs[side], drill=again)
        return more

    return Planned(name, specs, how=f"epochs of {batches} batches", then=then)


def compare(drill: Planned, runs: Mapping[str, Recording]) -> tuple[Findings | None, str]:
    """What was found, and a sentence for when that is nothing; no findings when there was nothing to compare."""
    original, migrated = runs["original"], runs["migrated"]
    for side, recording in (("original", original), ("migrated program", migrated)):
        if not any(event["what"] == "epoch" for event in recording.drilled):
            return None, f"the {side} uses no DataLoader"
    if known.late(original):
        return None, "the original leaves an iteration before its step, and does other steps than a right program"
    found = Findings()
    told, causes = structure.differences(original, migrated)
    if told:
        found.red(told[0], *causes)
        return found, ""
    verdict = precision.judge(original, migrated, drill.dtype)
    if evaluated := [e for e in verdict.evidence if e.startswith("evaluation")]:
        found.evidence += evaluated
        found.causes += verdict.causes
    material = checkpoint.Material(original, migrated)
    saves = {side: runs[side].save_near(EPOCH) for side in ("original", "migrated")}
    again = runs.get("original again")
    if again is not None and again.trouble is not None:
        material.notes.append(f"resumed with these arguments the original program {again.trouble}")
    for side, saved in saves.items():
        if saved is not None and f"{side} again" in runs and again is not None and again.trouble is None:
            setattr(material, f"{side}_own", checkpoint.Resumed(saved["window"], runs[f"{side} again"], own=True))
    if saves["original"] is not None and saves["migrated"] is None:
        material.problems.append(
            "the original saves a checkpoint at the end of an epoch, the migrated program does not"
        )
    saved_alike = checkpoint.judge(material)
    found.evidence += saved_alike.evidence
    found.causes += saved_alike.causes
    found.announced += saved_alike.announced
    return found, f"{drill.how}: {_seen(original, saves['original'] is not None, saved_alike.summary)}"


def _seen(original: Recording, saved: bool, resumed: str) -> str:
    parts = ["evaluated" if "eval" in original.census else "nothing is evaluated"]
    parts.append("saved" if saved else "no training is saved")
    if saved:
        parts.append(resumed if resumed != "nothing to compare" else "not resumed (--resume-args)")
    return ", ".join(parts)
