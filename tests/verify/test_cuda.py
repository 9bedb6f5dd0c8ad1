"""The same verdicts on a real GPU, where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import Outcome, judge
from amp_migrate.verify.launch import Launcher
from tests.trust import programs
from tests.trust.programs import Regime

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def verify(folder: Path, regime: Regime, fault: str | None = None) -> Outcome:
    for side, text in (("original", programs.original(regime)), ("migrated", programs.migrated(regime, fault))):
        (folder / side).mkdir()
        (folder / side / "train.py").write_text(text)
    pair = [Program(folder / side / "train.py", folder / side) for side in ("original", "migrated")]
    case = Case("case", *pair, steps=10, device="cuda", apex="shim", resume_args="--resume {checkpoint}",
                drills="all")  # fmt: skip
    with Launcher() as launcher:
        return judge(case, launcher, folder / "runs")


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("model", ["relu", "gelu", "conv"])
def test_right_migrations_pass(tmp_path: Path, model: str, level: str) -> None:
    outcome = verify(tmp_path, Regime(model=model, level=level))
    assert outcome.exit_code == 0, (outcome.trouble, [v for v in outcome.verdicts if v.status != "agrees"])
    assert outcome.environment["device"] == torch.cuda.get_device_name()


@pytest.mark.parametrize("fault", programs.FAULTS)
def test_faults_are_caught(tmp_path: Path, fault: str) -> None:
    regime = Regime(scale="static" if fault == "static made dynamic" else "high", accumulation=2)
    assert programs.cannot_change(fault, regime) in (None, "nothing is restored in this regime")
    assert verify(tmp_path, regime, fault).exit_code == 1
