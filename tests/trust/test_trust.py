"""The short form of the trust suite; `python -m tests.trust.run` is the whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amp_migrate.verify.launch import Launcher
from tests.trust import programs, suite
from tests.trust.programs import FAULTS, Regime

# The verdict that must catch each fault, in a regime in which the loss curve alone would show little of it.
HIDDEN = Regime(optimizer="adam", scale="low", clip="never", accumulation=1)
CATCHES = {
    "missing unscale_": "lockstep",
    "duplicate unscale_": "lockstep",
    "missing update": "lockstep",
    "update before step": "lockstep",
    "update between optimizers": "scale",
    "autocast missing": "precision",
    "autocast around backward": "precision",
    "autocast missing on one of two models": "precision",
    "loss scaled twice": "lockstep",
    "backward on the unscaled loss": "lockstep",
    "scaler state not saved": "checkpoint",
    "scaler state not restored": "checkpoint",
    "wrong initial scale": "scale",
    "wrong growth interval": "scale",
    "static made dynamic": "scale",
    "dynamic made static": "scale",
    "clipping per micro-batch": "lockstep",
    "clipping before unscaling": "lockstep",
    "step of one optimizer lost": "lockstep",
    "enabled inverted": "precision",
    "evaluation out of autocast": "precision",
    "weights left in half": "lockstep",
    "bfloat16 in place of float16": "precision",
    "bfloat16 in evaluation": "precision",
    **{fault: f"drill: {drills.split(',')[0]}" for fault, drills in programs.DRILLED.items()},
}


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher(parallel=2, environment={"OMP_NUM_THREADS": "1"}) as launcher:
        yield launcher


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_caught_where_it_hides(launcher: Launcher, tmp_path: Path, fault: str) -> None:
    changes = {
        "scaler state not restored": {"resume": True},
        "static made dynamic": {"scale": "static"},
        "clipping per micro-batch": {"clip": "binds", "accumulation": 2},
    }.get(fault, {})
    regime = Regime(**{**vars(HIDDEN), **changes})
    assert programs.cannot_change(fault, regime) is None
    result = suite.verify(launcher, tmp_path / "work", regime, fault)
    assert result.outcome.exit_code == 1
    assert CATCHES[fault] in result.caught_by


@pytest.mark.parametrize(
    "regime",
    [
        Regime("sgd", "high", "binds", 1, True, "relu", "O1", 11),
        Regime("adam", "static", "binds", 2, False, "conv", "O2", 12),
        Regime("adam", "low", "never", 2, True, "gelu", "O2", 13),
        Regime("sgd", "high", "never", 1, False, "gelu", "O1", 14),
    ],
    ids=str,
)
def test_right_migrations_pass(launcher: Launcher, tmp_path: Path, regime: Regime) -> None:
    outcome = suite.verify(launcher, tmp_path / "work", regime).outcome
    assert outcome.exit_code == 0, (outcome.trouble, [v for v in outcome.verdicts if v.status != "agrees"])
    assert [v.status for v in outcome.verdicts[:5]] == ["agrees"] * 5
    assert [v.status for v in outcome.verdicts if v.name == "drill: overflow"] == ["agrees"]
