"""Which runs a verdict needs, and the verdicts from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from amp_migrate.verify import lowered, roundtrip
from amp_migrate.verify.cache import Cache
from amp_migrate.verify.case import Case
from amp_migrate.verify.coverage.diff import FileDiff
from amp_migrate.verify.coverage.tally import Coverage
from amp_migrate.verify.drills import verdicts as drilled
from amp_migrate.verify.drills.plan import plan
from amp_migrate.verify.drills.planned import Known, Planned
from amp_migrate.verify.launch import ANOTHER_RANK, Launcher, ranks
from amp_migrate.verify.progress import Tracker
from amp_migrate.verify.record import Recording, read
from amp_migrate.verify.recording.spec import RunSpec
from amp_migrate.verify.thresholds import NOISE
from amp_migrate.verify.verdicts import checkpoint, cost, curve, known, lockstep, precision, scale, structure
from amp_migrate.verify.verdicts.verdict import Status, Verdict, failure_causes, merge

LONG, FEW = 120.0, 2  # runs longer than this many seconds are repeated only twice
NO_APEX = (
    "nothing to compare: the original ran without Apex. If only some arguments turn it on, give them after `--`; if the "
    "program has been migrated already, name the commit before that: --original-rev REV"
)
Progress = Callable[[str], None]
Ranks = list[Recording]  # one recording for each process of a distributed job; a list of one otherwise


@dataclass
class Outcome:
    """The verdicts of one case. `trouble` is set when it could not be judged at all."""

    case: Case
    verdicts: list[Verdict] = field(default_factory=list)
    cost: list[dict[str, Any]] = field(default_factory=list)
    trouble: str | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    norms: dict[str, list[float | None]] = field(default_factory=dict)  # gradient norm by attempt, for the plots
    changes: list[FileDiff] = field(default_factory=list)
    coverage: Coverage | None = None
    said: tuple[str, ...] = ()  # lines: the traceback, or the last words, of the program that failed
    defect: bool = False  # the trouble is a defect of amp-migrate itself
    uncompiled: bool = False  # a program called torch.compile, and ran as it was written
    unkept: str | None = None  # why its records could not be kept where that was asked for
    stopped: bool = False  # the runs were ended after so many steps, not by the programs

    @property
    def exit_code(self) -> int:
        """0 agrees, 1 disagrees, 2 could not be judged."""
        if any(v.status == "disagrees" for v in self.verdicts):
            return 1
        if self.trouble is not None or not self.verdicts or any(v.status == "unjudged" for v in self.verdicts):
            return 2
        return 0

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "result": ("agrees", "disagrees", "unjudged")[self.exit_code],
            "trouble": self.trouble,
            "said": list(self.said),
            "verdicts": [v.to_json() for v in self.verdicts],
            "cost": self.cost,
            "gradient_norms": self.norms,
            "coverage": None if self.coverage is None else self.coverage.to_json(),
            "changes": [file.to_json() for file in self.changes],
            "environment": self.environment,
            "notes": [*self.notes, *(f"left to a person: {note}" for note in self.case.notes)],
        }


def judge(case: Case, launcher: Launcher, work: Path, progress: Progress = lambda message: None) -> Outcome:
    """Run what is needed in `work` and judge. Raises LaunchError when nothing can be run."""
    outcome = Outcome(case)
    launcher.tracker = Tracker(progress, launcher.parallel)
    originals, migrateds = _run(case, launcher, lowered.first_runs(case, work))
    started = originals[0].environment
    outcome.environment = {"python": started.get("python"), "torch": started.get("torch"),
                           "device": originals[0].end.get("device")}  # fmt: skip
    outcome.stopped = any(r.end.get("reason") == "steps" for r in (originals[0], migrateds[0]))
    outcome.uncompiled = any(r.uncompiled for r in (originals[0], migrateds[0]))
    outcome.said = _said(originals)
    if not outcome.said and (said := _said(migrateds)):
        outcome.said = (*said, "(lines are those of the migrated program)")
    if (trouble := _trouble(originals)) is not None:
        outcome.trouble = f"the original program {trouble}"
    elif case.needs_apex and not any(_is_mixed(original) for original in originals):
        outcome.trouble = NO_APEX
    elif (step := _diverges(originals[0])) is not None:
        outcome.trouble = (
            f"the original program diverges: its loss is not finite from step {step} on, with no step skipped"
        )
    elif (trouble := _trouble(migrateds)) is not None:
        verdict = _migrated_fails(trouble)
        outcome.verdicts.append(verdict)
        if verdict.status == "unjudged":
            outcome.trouble = f"the migrated program {trouble}"
    elif (low := lowered.lower(case, work, originals, migrateds, partial(_run, case, launcher))) is not None:
        _judge_runs(low.case, launcher, low.work, low.originals, low.migrateds, outcome)
        outcome.notes.append(low.note)
        outcome.verdicts = [
            lowered.judge_scale(v, originals, migrateds, low) if v.name == scale.NAME else v for v in outcome.verdicts
        ]
    else:
        _judge_runs(case, launcher, work, originals, migrateds, outcome)
    return outcome


def _judge_runs(
    case: Case, launcher: Launcher, work: Path, originals: Ranks, migrateds: Ranks, outcome: Outcome
) -> None:
    noise = NOISE["bfloat16" if "bfloat16" in (case.dtype, *originals[0].end.get("autocast", ())) else "float16"]
    state = str(work / "original")
    specs = {
        "forced": case.spec("migrated", work / "forced", force_from=state, census=True),
        "rounding": case.spec("original", work / "rounding", force_from=state, census=True, noise=noise, noise_seed=99),
    }
    if case.fp32:
        specs["fp32"] = case.spec("migrated", work / "fp32", full_precision=True)
    reruns = _reruns(case, originals[0])
    for n in range(reruns):
        specs[f"rerun {n}"] = case.spec("original", work / f"rerun{n}", noise=noise, noise_seed=n + 1)
    specs.update(roundtrip.specs(case, work, originals[0], migrateds[0]))
    drills = plan(Known(case, originals[0], migrateds[0], work, state))
    specs.update({f"{drill.name} {side}": spec for drill in drills for side, spec in drill.specs.items()})
    runs = dict(zip(specs, _run(case, launcher, list(specs.values())), strict=True))

    for name in ("rounding", *(f"rerun {n}" for n in range(reruns))):
        if (trouble := _trouble(runs[name])) is not None:
            outcome.trouble = f"the original program, run again under rounding noise, {trouble}"
            outcome.said = _said(runs[name])
            return
    if (moved := structure.batches_differ(originals[0].attempts, runs["rerun 0"][0].attempts)) is not None:
        outcome.trouble = (
            f"the original sees another batch at step {moved} when it is run again: its data does not follow the seed, "
            "so no two runs can be compared"
        )
        return
    by_rank = []
    for rank, (original, migrated) in enumerate(zip(originals, migrateds, strict=True)):
        of_rank = {name: team[rank] for name, team in runs.items()}
        by_rank.append(_verdicts(case, launcher, work, original, migrated, of_rank, outcome))
    outcome.verdicts = [merge(list(of_ranks)) for of_ranks in zip(*by_rank, strict=True)]
    alike = all(v.status == "agrees" for v in outcome.verdicts if v.name == lockstep.NAME)
    outcome.verdicts += [_drilled(drill, case, launcher, runs, originals, alike=alike) for drill in drills]
    _ranks_skip_together(migrateds, outcome)
    original, migrated = originals[0], migrateds[0]
    outcome.norms = {
        "original": [a.grad_norm for a in original.attempts],
        "migrated": [a.grad_norm for a in migrated.attempts],
    }
    rows = {"original": original, "migrated": migrated}
    outcome.cost = cost.table({**rows, "fp32": runs["fp32"][0]} if case.fp32 else rows)


def _drilled(
    drill: Planned, case: Case, launcher: Launcher, runs: dict[str, Ranks], originals: Ranks, *, alike: bool
) -> Verdict:  # fmt: skip
    """The verdict of one drill over all ranks; `alike`: without it the two programs are in lockstep."""
    of_ranks = []
    for rank, original in enumerate(originals):
        own: dict[str, Recording] = {side: runs[f"{drill.name} {side}"][rank] for side in drill.specs}
        more = drill.then(own) if drill.then is not None else {}
        own.update(zip(more, (team[0] for team in _run(case, launcher, list(more.values()))), strict=True))
        noise = drilled.noise_of(original, runs["rounding"][rank]) if alike else None
        of_ranks.append(drilled.judge(drill, own, noise))
    return merge(of_ranks)


def _verdicts(
    case: Case, launcher: Launcher, work: Path, original: Recording, migrated: Recording, runs: dict[str, Recording],
    outcome: Outcome,
) -> list[Verdict]:  # fmt: skip
    """The five verdicts on one process."""
    reruns = [run for name, run in runs.items() if name.startswith("rerun ")]
    if (factor := known.by_hand(original, migrated)) is not None:
        outcome.notes.append(f"the original multiplies its loss by {factor:g} itself")
        original, runs["rounding"] = known.divided(original, factor), known.divided(runs["rounding"], factor)
        reruns = [known.divided(run, factor) for run in reruns]
    compared = known.until_overflow(original, migrated, case.dtype)

    def run(specs: list[RunSpec]) -> list[Ranks]:
        return _run(case, launcher, specs)

    material = roundtrip.material_of(case, run, work, original, migrated, runs, reruns)
    verdicts = [
        lockstep.judge(original, migrated, runs["forced"], runs["rounding"], wider=case.dtype == "bfloat16"),
        scale.judge(original, migrated, case.dtype),
        precision.judge(runs["rounding"], runs["forced"], case.dtype),
        curve.judge(compared, migrated, reruns),
        roundtrip.judge(case, run, work, material),
    ]
    if verdicts[0].status == "disagrees" and lockstep.begins_alike(verdicts[0]) and case.nproc == 1:
        material.control = material.control or roundtrip.control(case, run, work, original)
        if material.outside is not None:
            verdicts[0] = lockstep.without_state(verdicts[0], checkpoint.OUTSIDE)
    if compared is not original:
        verdicts[3].announced.append(
            f"float16 overflowed at step {compared.attempts[-1].window}, bfloat16 does not: the curves are compared up to it"
        )
    parted = verdicts[1].data.get("first_difference") if verdicts[1].status == "agrees" else None
    for verdict in verdicts:
        if verdict.status == "disagrees" and verdict.name != precision.NAME:
            verdict.announced += known.defects(original)
            if parted is not None and verdict.name in (curve.NAME, checkpoint.NAME):
                verdict.announced.append(f"from step {parted} on the loss scales differ, see there")
    return verdicts


def _run(case: Case, launcher: Launcher, specs: list[RunSpec]) -> list[Ranks]:
    """Each spec as one job of `case.nproc` processes; their recordings by rank. Reruns may come from the cache."""
    cache, keys = Cache(), dict[str, str]()
    if case.cache and case.original.tree is not None and case.nproc == 1:
        keys = {s.out: cache.key(s, case.original.tree) for s in specs if s.noise and s.force_from is None}
    found = {s.out: [read(s)] for s in specs if s.out in keys and cache.fetch(keys[s.out], s)}
    wanted = [s for s in specs if s.out not in found]
    launcher.tracker.expect(len(wanted))
    recordings = launcher.run(ranks(wanted, case.nproc))
    for i, spec in enumerate(wanted):
        found[spec.out] = recordings[i * case.nproc : (i + 1) * case.nproc]
        if spec.out in keys and found[spec.out][0].trouble is None:
            cache.keep(keys[spec.out], spec)
    return [found[spec.out] for spec in specs]


def _reruns(case: Case, original: Recording) -> int:
    """How many reruns under noise: as many as asked for, fewer when one takes minutes."""
    seconds = sum(a.seconds or 0.0 for a in original.attempts)
    return case.reruns if seconds < LONG else min(case.reruns, FEW)


def _trouble(team: Ranks) -> str | None:
    """What went wrong in a job: of several ranks, where it went wrong first. The others lose their connection."""
    failed = _failed(team)
    return failed.trouble if failed is not None else None


def _said(team: Ranks) -> tuple[str, ...]:
    """What the program that failed said of it: its traceback, or its last words."""
    failed = _failed(team)
    return failed.said() if failed is not None else ()


def _failed(team: Ranks) -> Recording | None:
    failed = [r for r in team if r.trouble is not None]
    failed.sort(key=lambda r: (str(r.trouble).startswith(ANOTHER_RANK), r.end.get("at", math.inf)))
    return failed[0] if failed else None


def _ranks_skip_together(migrateds: Ranks, outcome: Outcome) -> None:
    first = [a.skipped for a in migrateds[0].attempts]
    for rank, recording in enumerate(migrateds[1:], 1):
        for step, (one, other) in enumerate(zip(first, (a.skipped for a in recording.attempts), strict=False)):
            if one != other:
                verdict = next(v for v in outcome.verdicts if v.name == scale.NAME)
                verdict.status = "disagrees"
                skips, steps = (0, rank) if one else (rank, 0)
                verdict.summary = f"step {step} is skipped on rank {skips} and taken on rank {steps}"
                verdict.evidence.insert(0, verdict.summary)
                verdict.causes.append("gradients are not reduced over the ranks before the overflow is looked for")
                return


def _is_mixed(original: Recording) -> bool:
    """Whether Apex, or what torch has in its place, had a part in the run."""
    own = any(scaler["enabled"] for scaler in original.scalers.values())
    return bool(own or original.end.get("apex_used") or original.end.get("autocast"))


def _diverges(original: Recording) -> int | None:
    """The step from which a majority of losses is nan or infinite although the optimizer steps."""
    lost = [a.window for a in original.attempts if not a.skipped and a.loss is not None and not math.isfinite(a.loss)]
    return lost[0] if len(lost) > len(original.attempts) / 2 else None


def _migrated_fails(trouble: str) -> Verdict:
    """The original trains and the migrated program does not: that is a disagreement, unless time alone ran out."""
    stopped = "did not finish within" in trouble or "made no step for" in trouble
    status: Status = "unjudged" if stopped else "disagrees"
    return Verdict(
        lockstep.NAME, status, f"the migrated program {trouble}",
        [f"the original trains; the migrated program {trouble}"], failure_causes(trouble),
    )  # fmt: skip
