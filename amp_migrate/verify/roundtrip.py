"""The runs of the checkpoint verdict: saved and loaded by the tool, by the program, converted, and the control of each."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amp_migrate.verify.case import Case
from amp_migrate.verify.record import Recording
from amp_migrate.verify.recording.spec import RunSpec, Side
from amp_migrate.verify.resuming import resumed
from amp_migrate.verify.verdicts import checkpoint, curve
from amp_migrate.verify.verdicts.verdict import Verdict

Run = Callable[[list[RunSpec]], list[list[Recording]]]  # each as one job; the recordings of its ranks


def specs(case: Case, work: Path, original: Recording, migrated: Recording) -> dict[str, RunSpec]:
    """The runs of the checkpoint verdict that need nothing but the first two recordings."""
    wanted: dict[str, RunSpec] = {}
    for name, recording in (("tool", migrated), ("converted", original)):
        window = captured_window(recording, case)
        if window is not None and (name == "tool" or case.resume_args is None or case.nproc > 1):
            source = work / ("migrated" if name == "tool" else "original")
            wanted[name] = case.spec("migrated", work / name, restart_at=window, force_from=str(source))
    if case.resume_args is None or case.nproc > 1:
        return wanted
    sides: tuple[tuple[Side, Recording], ...] = (("original", original), ("migrated", migrated))
    for side, recording in sides:
        saved = recording.save_near(case.middle)
        if saved is not None:
            wanted[f"{side} resumed"] = resumed(case, side, work / f"{side}-resumed", saved, saved["kept"], recording)
    return wanted


def places(case: Case) -> tuple[int, ...]:
    """Where the tool may save for the round trip: the step asked for, and earlier ones for a program that ends before."""
    return tuple(sorted({2, 8, case.middle})) if case.middle > 8 else (case.middle,)


def captured_window(recording: Recording, case: Case) -> int | None:
    """The first window whose state was saved at the step of the round trip, or at the last place before it."""
    saved = {a.nth: a.window for a in reversed(recording.attempts) if a.captured and a.nth in places(case)}
    return saved[max(saved)] if saved else None


def judge(case: Case, run: Run, work: Path, material: checkpoint.Material) -> Verdict:
    """Nothing is red for not being equal bit for bit where the program, run twice, is not equal to itself, or where the
    original does not go on as before either."""
    verdict = checkpoint.judge(material)
    if verdict.status != "disagrees" or case.nproc > 1:
        return verdict
    ((material.again,),) = run([case.spec("migrated", work / "migrated-again")])
    material.control = control(case, run, work, material.original)
    return checkpoint.judge(material)


def control(case: Case, run: Run, work: Path, original: Recording) -> checkpoint.Resumed | None:
    """The original through the tool's own saving and loading."""
    if (window := captured_window(original, case)) is None:
        return None
    spec = case.spec("original", work / "original-tool", restart_at=window, force_from=str(work / "original"))
    ((again,),) = run([spec])
    return checkpoint.Resumed(window, again, own=False)


def material_of(
    case: Case, run: Run, work: Path, original: Recording, migrated: Recording,
    runs: dict[str, Recording], reruns: list[Recording],
) -> checkpoint.Material:  # fmt: skip
    material = checkpoint.Material(original, migrated, dtype=case.dtype)
    if "tool" in runs:
        material.tool = checkpoint.Resumed(runs["tool"].spec.restart_at or 0, runs["tool"], own=False)
    material.band = curve.band(
        checkpoint.losses_of(original.attempts), [checkpoint.losses_of(r.attempts) for r in reruns]
    )
    if "converted" in runs:
        restart = runs["converted"].spec.restart_at or 0
        material.converted = checkpoint.Resumed(restart, runs["converted"], own=False)
    if case.resume_args is None:
        return material
    if case.nproc > 1:
        material.notes.append("under several processes only the tool's own saving and loading is tried")
        return material
    saves = {
        "original": original.save_near(case.middle),
        "migrated": migrated.save_near(case.middle),
    }
    for side in ("original", "migrated"):
        if f"{side} resumed" in runs:
            saved = saves[side]
            assert saved is not None
            setattr(material, f"{side}_own", checkpoint.Resumed(saved["window"], runs[f"{side} resumed"], own=True))
    if saves["migrated"] is None:
        if saves["original"] is not None:
            material.problems.append("the original saved a checkpoint within these steps, the migrated program did not")
        else:
            material.notes.append("neither program saved a checkpoint within these steps: raise --steps")
    if saves["original"] is not None and saves["original"]["apex"]:
        _convert_and_resume(case, run, work, original, saves["original"], material)
    return material


def _convert_and_resume(
    case: Case,
    run: Run,
    work: Path,
    original: Recording,
    saved: dict[str, Any],
    material: checkpoint.Material,
) -> None:
    """The original's own checkpoint, through `amp-migrate checkpoint`, into the migrated program."""
    from amp_migrate.checkpoint.files import convert_file
    from amp_migrate.checkpoint.states import CheckpointError

    source = Path(saved["kept"])
    target = work / f"converted{source.suffix}"
    try:
        convert_file(source, target, unsafe_pickle=True)  # written a moment ago, by the program under test
    except CheckpointError as error:
        material.problems.append(f"the original's checkpoint cannot be converted: {error}")
        return
    shutil.copyfile(f"{source}.random", f"{target}.random")
    left = case.spec("migrated", work / "migrated").own_tree
    spec = resumed(case, "migrated", work / "converted", saved, str(target), original, left=left)
    ((resuming,),) = run([spec])
    material.converted = checkpoint.Resumed(saved["window"], resuming, own=True)
