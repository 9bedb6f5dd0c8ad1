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
