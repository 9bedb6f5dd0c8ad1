"""What a report says besides the verdicts: the likeliest cause of a disagreement, and what this verification did not see."""

from __future__ import annotations

from amp_migrate.verify.drills.verdicts import PREFIX as DRILL
from amp_migrate.verify.judge import Outcome

_POINTS_ELSEWHERE = "see the"


def on_cpu(outcome: Outcome) -> bool:
    """Whether a CPU played the GPU."""
    return "CPU" in str(outcome.environment.get("device") or "").upper()


def likely(outcome: Outcome) -> str | None:
    """The first cause that a disagreeing verdict names itself, instead of pointing to another verdict."""
    causes = [cause for v in outcome.verdicts if v.status == "disagrees" for cause in v.causes]
    return next((cause for cause in causes if _POINTS_ELSEWHERE not in cause), None)


def not_seen(outcome: Outcome) -> list[str]:
    """What no verdict of this case is about. Empty where there is no verdict."""
    if not outcome.verdicts:
        return []
    told = []
    if outcome.coverage is not None and (missing := len(outcome.coverage.places) - len(outcome.coverage.ran)):
        told.append(f"{missing} changed place{'s' if missing > 1 else ''} that did not run (see coverage)")
    if on_cpu(outcome):
        told.append("the kernels of a GPU, its speed and its memory: CUDA's rules were applied on a CPU")
    if outcome.uncompiled:
        told.append("what torch.compile makes of the program: it was off (TORCHDYNAMO_DISABLE=1)")
    if any("no evaluation ran" in note for v in outcome.verdicts for note in v.announced) and not _drilled(
        outcome, "evaluation"
    ):
        told.append("evaluation: none ran within these steps")
    if outcome.stopped:
        told.append(f"what comes after {outcome.case.steps} steps (--steps)")
    if not any("migrated_own" in v.data for v in outcome.verdicts) and not _drilled(outcome, "resume"):
        told.append("the program's own loading of a checkpoint (--resume-args)")
    if not any(v.name.startswith(DRILL) for v in outcome.verdicts):
        told.append("an overflow or nan that is forced, growth of the scale (--drills)")
    told.append(f"other seeds than {outcome.case.seed}")
    return told


def _drilled(outcome: Outcome, name: str) -> bool:
    """Whether that drill came to a verdict."""
    return any(v.name == DRILL + name and v.status in ("agrees", "disagrees") for v in outcome.verdicts)
