"""From the runs of a drill to its verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping

from amp_migrate.verify.drills import evaluation, growth, resume, skips, switch
from amp_migrate.verify.drills.findings import Findings
from amp_migrate.verify.drills.planned import Planned
from amp_migrate.verify.record import Recording
from amp_migrate.verify.recording.spec import Drill
from amp_migrate.verify.verdicts import lockstep
from amp_migrate.verify.verdicts.lockstep import Distance
from amp_migrate.verify.verdicts.verdict import Verdict, failure_causes

PREFIX = "drill: "


def judge(drill: Planned, runs: Mapping[str, Recording], noise: Distance | None) -> Verdict:
    """`runs` are those of `drill.specs`, by side, and what followed from them."""
    name = PREFIX + drill.name
    if not drill.specs:
        return Verdict(name, "skipped", drill.because)
    original, migrated = runs["original"], runs["migrated"]
    if drill.struck is not None and (told := _ended_alike(original, migrated)) is not None:
        return Verdict(name, "agrees", told)
    if original.trouble is not None:
        return Verdict(name, "skipped", _of(drill, f"the original program {original.trouble}"))
    if migrated.trouble is not None:
        told = _of(drill, f"the original goes on; the migrated program {migrated.trouble}")
        if drill.forced:
            return Verdict(name, "skipped", told)
        return Verdict(name, "disagrees", told, [told], failure_causes(migrated.trouble))
    if (told := _not_forced(drill, runs)) is not None:
        return Verdict(name, "skipped", told)
    if drill.name == "resume":
        found, summary = resume.compare(drill, runs)
    else:
        found, summary = _compared(drill, original, migrated, noise)
    if found is None:
        return Verdict(name, "skipped", summary)
    if found.evidence:
        evidence = [_of(drill, found.evidence[0]), *found.evidence[1:]]
        return Verdict(name, "disagrees", evidence[0], evidence, found.causes, found.announced)
    return Verdict(name, "agrees", summary, announced=found.announced)


def _compared(
    drill: Planned, original: Recording, migrated: Recording, noise: Distance | None
) -> tuple[Findings | None, str]:  # fmt: skip
    """What was found, and a sentence for when that is nothing; no findings when there was nothing to compare."""
    if drill.name == "growth":
        found = growth.compare(drill, original, migrated)
        summary = _grown(original, migrated)
        if summary is None and not found.evidence:
            return None, "the scale does not grow within a few steps, on either side"
        return found, summary or ""
    if drill.name == "switch-off":
        compared = switch.compare(drill, original, migrated)
        same = f"{len(original.attempts)} steps in fp32 with {drill.how}: equal"
        return (None, compared) if isinstance(compared, str) else (compared, same)
    if drill.name == "evaluation":
        compared = evaluation.compare(drill, original, migrated)
        same = f"{len(original.evaluated)} forwards with {drill.how}: alike"
        return (None, compared) if isinstance(compared, str) else (compared, same)
    found = skips.compare(drill, original, migrated, noise)
    return found, _summary(drill, original, migrated, found)


def _not_forced(drill: Planned, runs: Mapping[str, Recording]) -> str | None:
    for side, spec in drill.specs.items():
        plain = spec.drill is None or spec.drill in (Drill(), Drill(evaluation=True))
        if not plain and drill.name != "resume" and not runs[side].drilled:
            return f"nothing could be forced upon the {'original' if side == 'original' else 'migrated program'}"
    return None


def _of(drill: Planned, told: str) -> str:
    return f"with {drill.how}: {told}" if drill.how else told


def noise_of(original: Recording, rounding: Recording) -> Distance:
    """How far rounding put the gradients of the original from themselves, at worst over the steps of lockstep."""
    worst = Distance(0.0, 1.0, 1.0)
    for attempt in original.attempts[: len(rounding.attempts)]:
        if not attempt.compared or attempt.skipped:
            continue
        seen = lockstep.distance(original.folder, rounding.folder, "grads", attempt.window)
        if not math.isfinite(seen.ratio) or seen.ratio <= 0:
            continue
        worst = Distance(
            max(worst.median, seen.median),
            max(worst.ratio, seen.ratio, 1 / seen.ratio),
            min(worst.cosine, seen.cosine),
        )
    return worst


def _ended_alike(original: Recording, migrated: Recording) -> str | None:
    """Both stop where they are struck, for the same reason: programs that give up on a loss that is nan."""
    if original.trouble is None or migrated.trouble is None or len(original.attempts) != len(migrated.attempts):
        return None
    one, other = (_reason(r) for r in (original, migrated))
    return f"both programs end here: {one}" if one is not None and one == other else None


def _reason(recording: Recording) -> str | None:
    end = recording.end
    if end.get("reason") == "raised":
        return str(end["error"]).split(":", 1)[0]
    return f"sys.exit({end.get('code')!r})" if end.get("reason") == "exited" else None


def _summary(drill: Planned, original: Recording, migrated: Recording, found: Findings) -> str:
    assert drill.struck is not None
    skipped = [w for w in drill.struck.windows if w < len(migrated.attempts) and migrated.attempts[w].skipped]
    steps = ", ".join(str(w) for w in drill.struck.windows)
    if not skipped and found.over:
        return f"step {steps} is taken, and the training goes on"
    if not skipped:
        return f"step {steps} is left out or taken as in the original"
    told = "skipped on both sides" if all(original.attempts[w].skipped for w in skipped) else "skipped"
    if found.over:
        return f"step {', '.join(str(w) for w in skipped)} {told}, and the training goes on"
    rest = len(migrated.attempts) - 1 - drill.struck.windows[-1]
    return f"step {', '.join(str(w) for w in skipped)} {told}, then {rest} steps as in the original"


def _grown(original: Recording, migrated: Recording) -> str | None:
    seen = [growth.grown(r) for r in (original, migrated)]
    if seen[1] is None:
        return None
    told = f"the scale grows from {seen[1][0]:g} to {seen[1][1]:g} in {len(migrated.attempts)} steps"
    return told + (" on both sides" if seen[0] == seen[1] else "")
