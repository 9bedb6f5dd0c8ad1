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
