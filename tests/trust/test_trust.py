"""The short form of the trust suite; `python -m tests.trust.run` is the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import Outcome
from amp_migrate.verify.launch import Launcher
from amp_migrate.verify.verdicts.verdict import Verdict
from tests.trust import programs, run, shaped, suite
from tests.trust.kept import Kept
from tests.trust.programs import FAULTS, Regime
from tests.trust.suite import Result

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


def test_what_a_generator_gave_is_no_batch_of_the_data(launcher: Launcher, tmp_path: Path) -> None:
    """Under rounding noise the fakes of this run drift by more than two batches of the data may differ."""
    regime = Regime("sgd", "high", "never", level="O1", seed=278, shape="gan")
    outcome = suite.verify(launcher, tmp_path / "work", regime).outcome
    assert outcome.exit_code == 0, (outcome.trouble, [v for v in outcome.verdicts if v.status != "agrees"])
    assert [v.status for v in outcome.verdicts[:5]] == ["agrees"] * 5


@pytest.mark.parametrize("shape", shaped.TEXTS)
def test_shapes_are_migrated_whole_and_every_fault_changes_them(shape: str) -> None:
    plain = Regime(shape=shape)
    assert "apex" in shaped.original(plain)
    assert "apex" not in shaped.migrated(plain)
    for regime, fault in shaped.planted():
        if regime.shape == shape:
            text = shaped.migrated(regime, fault)
            assert text != shaped.migrated(regime)
            compile(text, fault, "exec")


@pytest.mark.parametrize(("shape", "fault"), [("contrastive", None), ("detection", "plain step")])
def test_a_shape_is_judged_as_it_must_be(launcher: Launcher, tmp_path: Path, shape: str, fault: str | None) -> None:
    result = suite.verify(launcher, tmp_path / "work", Regime(shape=shape), fault)
    assert result.outcome.exit_code == (0 if fault is None else 1), result.outcome.trouble


def test_results_are_kept_by_program_and_verifier(tmp_path: Path) -> None:
    regime, fault = Regime("sgd", seed=3), FAULTS[0]
    file = tmp_path / "results.jsonl"
    outcome = Outcome(
        Case("case", Program(file, tmp_path), Program(file, tmp_path)),
        [Verdict("scale", "disagrees", ""), Verdict("lockstep", "agrees", "")],
    )
    Kept(file, "cpu").add(Result(fault, regime, outcome))
    again = Kept(file, "cpu").of(regime, fault)
    assert again is not None
    assert (again.regime, again.exit_code, again.caught_by) == (regime, 1, ("scale",))
    assert Kept(file, "cuda").of(regime, fault) is None
    assert Kept(file, "cpu").of(regime, None) is None
    assert Kept(None, "cpu").of(regime, fault) is None


def test_right_runs_are_of_every_shape() -> None:
    chosen = run.right(324)
    assert len(set(chosen)) == 324
    assert {regime.shape for regime in chosen} == {"", *shaped.TEXTS}
