"""What a verdict is: a colour, a sentence, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["agrees", "disagrees", "unjudged", "skipped"]


@dataclass
class Verdict:
    """`evidence` says what was seen; `causes` what usually lies behind a disagreement; `announced` names differences
    that are known between Apex and native AMP and explains what was seen of them. `data` is for plots and JSON."""

    name: str
    status: Status
    summary: str
    evidence: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "summary": self.summary,
            "evidence": self.evidence,
            "causes": self.causes,
            "announced": self.announced,
            "data": self.data,
        }


def merge(of_ranks: list[Verdict]) -> Verdict:
    """One verdict on a distributed job: the worst of its ranks, the others' evidence under their numbers."""
    if len(of_ranks) == 1:
        return of_ranks[0]
    order: list[Status] = ["disagrees", "unjudged", "agrees", "skipped"]
    worst = min(of_ranks, key=lambda v: order.index(v.status))
    rank = of_ranks.index(worst)
    alike = all(v.summary == worst.summary for v in of_ranks)
    return Verdict(
        worst.name,
        worst.status,
        f"all {len(of_ranks)} ranks: {worst.summary}" if alike else f"rank {rank}: {worst.summary}",
        [f"rank {r}: {e}" for r, v in enumerate(of_ranks) for e in v.evidence],
        list(dict.fromkeys(c for v in of_ranks for c in v.causes)),
        list(dict.fromkeys(a for v in of_ranks for a in v.announced)),
        of_ranks[0].data,
    )


def failure_causes(trouble: str) -> list[str]:
    """What usually lies behind the error that stopped a migrated program."""
    known = {
        "unscale_() has already been called": "`scaler.unscale_` runs twice in one step, or update is missing",
        "unscale_() is being called after step()": "`scaler.update()` is missing after `scaler.step`",
        "step() has already been called": "`scaler.update()` is missing after `scaler.step`",
        "No inf checks were recorded": "`scaler.step` or `update` runs without a scaled backward before it",
        "Attempting to unscale FP16": "weights were left in half: remove `.half()`",
        "unsafe to autocast": "binary_cross_entropy inside autocast: use the with_logits form",
        "must have the same dtype": "an operation mixes half and fp32: weights left in half, or autocast missing",
        "No module named 'apex'": "an import of Apex was left behind",
        "apex": "a use of Apex was left behind",
    }
    return [cause for text, cause in known.items() if text in trouble][:1]
