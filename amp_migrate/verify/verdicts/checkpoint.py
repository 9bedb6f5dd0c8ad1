"""Verdict 5, checkpoint round trip: a fresh process goes on exactly where the saved one was.

Three questions, each asked only where the program lets it be: does a saved checkpoint hold the loss scaler; does a
resumed run start with the saved weights, optimizer state, scale and growth tracker, and continue the unbroken run's
losses; and does an Apex checkpoint, converted, continue the original's curve?
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amp_migrate.verify.record import Attempt, Recording
from amp_migrate.verify.thresholds import CURVE_FACTOR, CURVE_FLOOR
from amp_migrate.verify.verdicts import known
from amp_migrate.verify.verdicts.scale import SCALE_PER_LOSS, scale_per_loss
from amp_migrate.verify.verdicts.verdict import Verdict

NAME = "checkpoint"
OUTSIDE = "the program keeps state outside of modules, optimizers, scaler and random generators"


@dataclass
class Resumed:
    """A run resumed at `step` of an unbroken run. `own` says through the script's own saving and loading code."""

    step: int
    recording: Recording
    own: bool

    @property
    def attempts(self) -> list[Attempt]:
        """From the resumed step on. The tool's runs pass through all steps before, their own ones start there."""
        return self.recording.attempts if self.own else self.recording.attempts[self.step :]


@dataclass
class Material:
    """What was run for this verdict; parts that were not asked for, or failed, are None and said in `notes`."""

    original: Recording
    migrated: Recording
    tool: Resumed | None = None  # migrated, through the tool's own save and load
    migrated_own: Resumed | None = None
    original_own: Resumed | None = None
    converted: Resumed | None = None  # the migrated program from the original's converted checkpoint
    dtype: str | None = None  # the half format that was asked for
    band: list[float] = field(default_factory=list)  # for each of `losses_of` the original, see verdicts.curve
    again: Recording | None = None  # the migrated program's unbroken run once more: is it reproducible at all?
    control: Resumed | None = None  # the original, through the tool's own save and load
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def parts_at(self) -> int | None:
        """The step at which two runs of the migrated program, alike in everything, part; None if they do not."""
        if self.again is None or self.again.trouble is not None:
            return None
        steps = _equal_steps(self.migrated.attempts, self.again.attempts)
        return steps if steps < min(len(self.migrated.attempts), len(self.again.attempts)) else None

    @property
    def outside(self) -> str | None:
        """Where the original itself does not go on as before: the program keeps state that the tool cannot find."""
        if self.control is None or self.control.recording.trouble is not None:
            return None
        told: list[str] = []
        band = None if self.parts_at is None else self.band
        _bitwise(self.control, self.original, "the original, saved and loaded by the tool", told, [], band)
        return told[0] if told else None


def judge(material: Material) -> Verdict:
    """Judge what could be run. With `again` differing from the first run, only within the band."""
    evidence = list(material.problems)
    causes: list[str] = []
    announced = list(material.notes)
    done: list[str] = []
    if material.parts_at is not None:
        announced.append(
            f"run twice, the migrated program parts from itself at step {material.parts_at}: it uses operations that are "
            "not deterministic, so nothing can be equal bit for bit, and what is resumed is compared within the band"
        )
    if (outside := material.outside) is not None:
        announced.append(f"{OUTSIDE}: {outside}; so that was not compared")
    _saved_states(material.original, material.migrated, evidence, causes)
    if material.tool is not None and outside is None:
        band = None if material.parts_at is None else material.band
        done.append(_bitwise(material.tool, material.migrated, "saved and loaded by the tool", evidence, causes, band))
    if material.migrated_own is not None:
        done.append(_own(material, material.migrated_own, evidence, causes, announced))
    if material.converted is not None and (outside is None or material.converted.own):
        done.append(_converted(material, material.converted, evidence, causes, announced))
    data: dict[str, Any] = {
        name: {"step": r.step, "losses": r.recording.losses()}
        for name in ("tool", "migrated_own", "original_own", "converted")
        if (r := getattr(material, name)) is not None
    }
    if evidence:
        return Verdict(NAME, "disagrees", evidence[0], evidence, causes, announced, data)
    told = [d for d in done if d]
    if not told:
        return Verdict(NAME, "skipped", "nothing to compare", announced=announced, data=data)
    return Verdict(NAME, "agrees", "; ".join(told), announced=announced, data=data)


def _saved_states(original: Recording, migrated: Recording, evidence: list[str], causes: list[str]) -> None:
    """Checkpoints written during the runs: where Apex's state was saved, GradScaler's must be."""
    with_apex = [s for s in original.saves if s["apex"]]
    if not with_apex or not any(s["enabled"] for s in migrated.scalers.values()):
        return
    checkpoints = [s for s in migrated.saves if s["optimizer"] or s["native"]]
    if not checkpoints:
        evidence.append(f"the original saves its loss scaler ({with_apex[0]['path']}); the migrated program saves none")
        causes.append("the checkpoint is no longer written")
    elif not any(s["native"] for s in checkpoints):
        evidence.append(
            f"the original's checkpoint holds the loss scaler, the migrated one does not ({checkpoints[0]['path']})"
        )
        causes.append("`scaler.state_dict()` is not saved")


def _bitwise(
    resumed: Resumed, unbroken: Recording, how: str, evidence: list[str], causes: list[str], band: list[float] | None
) -> str:  # fmt: skip
    """Without a band everything is equal, with one the losses lie within it."""
    after = {a.window: a for a in resumed.recording.attempts}
    compared = 0
    if resumed.recording.trouble is not None:
        evidence.append(f"the run resumed at step {resumed.step} {resumed.recording.trouble}")
        return ""
    for attempt in unbroken.attempts[resumed.step :]:
        other = after.get(attempt.window)
        if other is None:
            break
        width = band[min(attempt.window, len(band) - 1)] if band else 0.0
        told = _difference(attempt, other) if band is None else _apart(attempt, other, width)
        if told is not None:
            evidence.append(f"{how}, resumed at step {resumed.step}: {told}")
            causes.append("part of the state lives outside model, optimizer, scaler and random generators")
            return ""
        compared += 1
    alike = "equal bit for bit" if band is None else "within the band"
    return f"{how}: {compared} steps after step {resumed.step} {alike}" if compared else ""


def _own(material: Material, resumed: Resumed, evidence: list[str], causes: list[str], announced: list[str]) -> str:
    """Through the script's own code: the state it starts from, then its losses."""
    run, unbroken = resumed.recording, material.migrated
    if (failure := _fails_likewise(run, material.original_own)) is not None:
        announced.append(failure)
        return ""
    if run.trouble is not None:
        evidence.append(f"resumed through its own code, the migrated program {run.trouble}")
        causes.append("the scaler is created after loading, or the checkpoint lacks what loading asks for")
        return ""
    if resumed.step >= len(unbroken.attempts):
        announced.append("the checkpoint was saved after the last recorded step; nothing to compare (run more --steps)")
        return ""
    first, expected = run.attempts[0], unbroken.attempts[resumed.step]
    told = _scale_difference(expected, first, unbroken, run)
    if told is not None and _loses_its_scale(material.original_own, material.original, first):
        announced.append(f"the original does not save its loss scale either; resumed at step {resumed.step}: {told}")
    elif told is not None:
        evidence.append(f"resumed through its own code at step {resumed.step}: {told}")
        causes += ["`scaler.load_state_dict(...)` is missing, or runs before the scaler exists",
                   "`scaler.state_dict()` is not saved"]  # fmt: skip
        return ""
    different = _first_state_difference(run, unbroken, resumed.step)
    before = material.original_own
    if different is not None and before is not None and before.recording.trouble is None:
        if _first_state_difference(before.recording, material.original, before.step) == different:
            announced.append(
                f"the original does not restore all of its state either; at step {resumed.step}: {different}"
            )
            return f"own checkpoint: resumed at step {resumed.step} as the original"
    if different is not None:
        evidence.append(f"resumed through its own code at step {resumed.step}: {different}")
        causes.append("weights or optimizer state are not saved or not restored")
        return ""
    steps = _equal_steps(unbroken.attempts[resumed.step :], run.attempts)
    if steps == min(len(run.attempts), len(unbroken.attempts) - resumed.step):
        return f"own checkpoint: {steps} steps after step {resumed.step} equal bit for bit"
    if before is not None and before.recording.trouble is None and material.parts_at is None:
        other = _equal_steps(material.original.attempts[before.step :], before.recording.attempts)
        if other > steps:
            evidence.append(
                f"resumed through its own code, the original continues {other} steps exactly, the migrated {steps}"
            )
            causes.append("part of the state is not saved or not restored")
            return ""
    if told is not None:
        return f"own checkpoint: state at step {resumed.step} restored as in the original"
    announced.append(
        f"after resuming, scale, tracker, weights and optimizer state are equal; the losses part after {steps} steps, "
        "because the program does not save what its data order or dropout depends on"
    )
    return f"own checkpoint: state at step {resumed.step} restored exactly"


def _loses_its_scale(own: Resumed | None, unbroken: Recording, first: Attempt) -> bool:
    """Whether the original, resumed through its own code, starts from the scale of `first` too, not from the saved one."""
    if own is None or own.recording.trouble is not None or own.step >= len(unbroken.attempts):
        return False
    its = own.recording.attempts[0]
    lost = _scale_difference(unbroken.attempts[own.step], its, unbroken, own.recording) is not None
    return lost and _scale_words(its, first) is None


def _fails_likewise(run: Recording, original: Resumed | None) -> str | None:
    """That the original fails to resume with the very error of the migrated program: no fault of the migration."""
    error = run.end.get("error")
    if run.trouble is None or error is None or original is None or original.recording.end.get("error") != error:
        return None
    return f"the original does not resume through its own code either, so that was not compared: it {original.recording.trouble}"


def _converted(
    material: Material, resumed: Resumed, evidence: list[str], causes: list[str], announced: list[str]
) -> str:
    """From the original's checkpoint, converted, against the original's unbroken run."""
    run, unbroken = resumed.recording, material.original
    if resumed.own and _fails_likewise(run, material.original_own) is not None:
        return ""  # told with its own checkpoint
    if run.trouble is not None:
        evidence.append(f"from the original's converted checkpoint the migrated program {run.trouble}")
        causes.append("the loading code reads another key or layout")
        return ""
    if resumed.step >= len(unbroken.attempts) or not resumed.attempts:
        return ""
    first, expected = resumed.attempts[0], unbroken.attempts[resumed.step]
    scale, wanted = _scale(first), _scale(expected)
    if scale is not None and wanted is not None and scale != wanted and scale_per_loss(unbroken, material.migrated):
        announced.append(SCALE_PER_LOSS)
    elif scale is not None and wanted is not None and scale != wanted:
        evidence.append(
            f"from the converted checkpoint: scale {scale}, in the original at step {resumed.step} {wanted}"
        )
        causes.append("`scaler.load_state_dict(...)` is missing or guarded by a key the converted file lacks")
        return ""
    later = known.until_overflow(unbroken, material.migrated, material.dtype, resumed.step)
    widths = material.band[len(losses_of(unbroken.attempts[: resumed.step])) :]
    losses, whole = losses_of(resumed.attempts), losses_of(later.attempts[resumed.step :])
    parted = _parting(losses, whole, widths)
    own = material.original_own
    again = losses_of(own.attempts) if own is not None and own.recording.trouble is None else None
    if again is not None and parted is None and _parting(again, whole, widths) is not None:
        announced.append(
            "resumed from its own checkpoint the original leaves its curve, the migrated program does not"
            + (": under O2 Apex passes Adam's second moments through fp16" if unbroken.opt_level == "O2" else "")
        )
    if parted is not None and (again is None or _parting(losses, again, widths) is not None):
        evidence.append(
            f"from the converted checkpoint: loss {losses[parted]:.6g} {parted} steps after it, in the original "
            f"{whole[parted]:.6g}"
        )
        causes.append("weights, optimizer state or data order come back differently")
        return ""
    tracker = f" and tracker {scale[1]}" if scale is not None and scale[1] is not None else ""
    kept = f"scale {scale[0]:g}{tracker} as in the original, " if scale is not None else ""
    return f"converted Apex checkpoint: {kept}curve inside the band"


def _parting(losses: list[float], against: list[float], widths: list[float]) -> int | None:
    """The first step at which two curves are further apart than the band allows."""
    for i, (x, y) in enumerate(zip(losses, against, strict=False)):
        width = max(widths[min(i, len(widths) - 1)] if widths else 0.0, CURVE_FLOOR * abs(y))
        if not abs(x - y) <= CURVE_FACTOR * width:
            return i
    return None


def _difference(one: Attempt, other: Attempt) -> str | None:
    if (told := _scale_words(one, other)) is not None:
        return told
    if one.skipped != other.skipped:
        return f"step {one.window} is {'skipped' if other.skipped else 'taken'}, in the unbroken run not"
    if one.loss != other.loss and not (one.loss != one.loss and other.loss != other.loss):
        return f"loss {other.loss!r} at step {one.window}, in the unbroken run {one.loss!r}"
    if one.grad_norm != other.grad_norm and one.grad_norm == one.grad_norm:
        return f"gradient norm {other.grad_norm!r} at step {one.window}, in the unbroken run {one.grad_norm!r}"
    return None


def _apart(one: Attempt, other: Attempt, width: float) -> str | None:
    """Of two steps of a program that is not reproducible: scale and skips are equal, losses near."""
    if (told := _scale_words(one, other)) is not None:
        return told
    if one.skipped != other.skipped:
        return f"step {one.window} is {'skipped' if other.skipped else 'taken'}, in the unbroken run not"
    if one.loss is None or other.loss is None:
        return None
    if not abs(one.loss - other.loss) <= CURVE_FACTOR * max(width, CURVE_FLOOR * abs(one.loss)):
        return f"loss {other.loss:.6g} at step {one.window}, in the unbroken run {one.loss:.6g}"
    return None


def _scale_difference(expected: Attempt, first: Attempt, unbroken: Recording, run: Recording) -> str | None:
    if not any(s["enabled"] for s in unbroken.scalers.values()):
        return None
    return _scale_words(expected, first)


def _scale_words(expected: Attempt, first: Attempt) -> str | None:
    for b, a in zip(expected.backwards, first.backwards, strict=False):
        if b.scale != a.scale:
            return f"scale {a.scale:g}, in the unbroken run {b.scale:g}"
        if b.tracker != a.tracker:
            return f"growth tracker {a.tracker}, in the unbroken run {b.tracker}"
    return None


def _first_state_difference(run: Recording, unbroken: Recording, step: int) -> str | None:
    """Weights and optimizer state at the start of the resumed run, against the unbroken run's at that step."""
    import torch

    ours, theirs = run.folder / "window_0.pt", unbroken.folder / f"window_{step}.pt"
    if not (ours.exists() and theirs.exists()):
        return None
    now, then = (torch.load(Path(p), weights_only=False) for p in (ours, theirs))
    for number, (a, b) in enumerate(zip(now["optimizers"], then["optimizers"], strict=False)):
        if a is None or b is None:
            continue
        for index, (x, y) in enumerate(zip(a["params"], b["params"], strict=False)):
            if not torch.equal(x, y):
                return f"parameter {index} of optimizer {number} differs from the saved one"
        for index, (x, y) in enumerate(zip(a["state"], b["state"], strict=False)):
            for key in sorted(set(x) | set(y)):
                if not _same(x.get(key), y.get(key)):
                    return f"optimizer {number}: {key} of parameter {index} differs from the saved one"
    for x, y in zip(_flat(now["buffers"]), _flat(then["buffers"]), strict=False):
        if not torch.equal(x, y):
            return "a buffer (running statistics?) differs from the saved one"
    return None


def _same(x: Any, y: Any) -> bool:
    import torch

    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        return torch.equal(x, y)
    return bool(x == y)


def _flat(lists: list[list[Any]]) -> list[Any]:
    return [item for inner in lists for item in inner]


def _equal_steps(unbroken: list[Attempt], resumed: list[Attempt]) -> int:
    for i, (one, other) in enumerate(zip(unbroken, resumed, strict=False)):
        if one.loss != other.loss or one.grad_norm != other.grad_norm:
            return i
    return min(len(unbroken), len(resumed))


def _scale(attempt: Attempt) -> tuple[float, int | None] | None:
    backward = next((b for b in attempt.backwards if b.scaler is not None), None)
    return None if backward is None else (backward.scale, backward.tracker)


def losses_of(attempts: list[Attempt]) -> list[float]:
    """Of every attempt that had a backward, in order."""
    return [a.loss for a in attempts if a.loss is not None]
