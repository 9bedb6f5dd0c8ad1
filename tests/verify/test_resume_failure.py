"""A program that cannot resume before its migration either is no fault of the migration."""

from __future__ import annotations

from amp_migrate.verify.record import Attempt, Recording
from amp_migrate.verify.recording.spec import RunSpec
from amp_migrate.verify.verdicts import checkpoint
from amp_migrate.verify.verdicts.checkpoint import Material, Resumed


def recording(error: str | None = None) -> Recording:
    made = Recording(RunSpec("train.py", (), ".", "migrated", "runs/x", 4))
    made.attempts = [Attempt(n) for n in range(4)] if error is None else []
    if error is not None:
        made.end = {"reason": "raised", "error": error}
        made.trouble = f"raised {error} after 0 steps"
    return made


def material(original: str | None, migrated: str) -> Material:
    own = [Resumed(2, recording(error), own=True) for error in (original, migrated)]
    return Material(recording(), recording(), original_own=own[0], migrated_own=own[1], converted=own[1])


def test_the_same_failure_on_both_sides_is_said_and_not_held_against_the_migration() -> None:
    verdict = checkpoint.judge(material("UnpicklingError: weights only", "UnpicklingError: weights only"))
    assert verdict.status == "skipped"
    assert verdict.announced == [
        "the original does not resume through its own code either, so that was not compared: it raised UnpicklingError: "
        "weights only after 0 steps"
    ]


def test_a_failure_of_the_migrated_program_alone_is_red() -> None:
    for original in (None, "FileNotFoundError: last.pt"):
        verdict = checkpoint.judge(material(original, "KeyError: 'amp'"))
        assert verdict.status == "disagrees"
        assert "the migrated program raised KeyError: 'amp'" in verdict.summary
