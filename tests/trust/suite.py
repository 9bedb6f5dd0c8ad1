"""Verify one planted fault or right migration; many share one launcher."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher
from tests.trust import programs, shaped
from tests.trust.programs import Regime

STEPS = 10
Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Result:
    """What the verifier said about one program."""

    fault: str | None
    regime: Regime
    outcome: Outcome

    @property
    def caught_by(self) -> list[str]:
        return [v.name for v in self.outcome.verdicts if v.status == "disagrees"]


def texts(regime: Regime, fault: str | None) -> dict[Literal["original", "migrated"], str]:
    """Both programs."""
    made = shaped if regime.shape else programs
    return {"original": made.original(regime), "migrated": made.migrated(regime, fault)}


def verify(
    launcher: Launcher, work: Path, regime: Regime, fault: str | None = None, *, steps: int = STEPS, device: Device = "cpu"
) -> Result:  # fmt: skip
    """Write both programs below `work`, verify them, and clean up."""
    shutil.rmtree(work, ignore_errors=True)
    for side, text in texts(regime, fault).items():
        (work / side).mkdir(parents=True)
        (work / side / "train.py").write_text(text)
    case = Case(
        fault or "right",
        Program(work / "original" / "train.py", work / "original"),
        Program(work / "migrated" / "train.py", work / "migrated"),
        steps=steps,
        device=device,
        apex="shim",
        argv=shaped.ARGUMENTS.get(regime.shape, ()),
        resume_args="--resume {checkpoint}" if regime.resume else None,
        reruns=3 if fault is None else 1,
        drills="all" if fault is None else (shaped if regime.shape else programs).DRILLED.get(fault, "none"),
        fp32=False,
    )
    outcome = judge(case, launcher, work / "runs")
    shutil.rmtree(work)
    return Result(fault, regime, outcome)
