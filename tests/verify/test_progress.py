"""Which run of how many, what it is for, about how long the rest will take."""

from __future__ import annotations

import pytest

from amp_migrate.verify import progress
from amp_migrate.verify.progress import Tracker
from amp_migrate.verify.recording.spec import RunSpec


def spec(name: str, **options: object) -> RunSpec:
    side = "original" if name.startswith(("original", "rounding", "rerun")) or name.endswith("original") else "migrated"
    return RunSpec("train.py", (), ".", side, f"runs/{name}", 5, **options)  # type: ignore[arg-type]


def test_runs_are_counted_and_what_is_left_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    told: list[str] = []
    tracker = Tracker(told.append, parallel=2)
    tracker.expect(2)
    tracker.began(spec("original"))
    tracker.began(spec("migrated"))
    now = 10.0
    tracker.ended(spec("original"))
    tracker.ended(spec("migrated"))
    tracker.expect(2)
    tracker.began(spec("forced"))
    tracker.began(spec("rerun0"))
    now = 700.0
    tracker.ended(spec("rerun0"))
    tracker.began(spec("converted"))  # not planned
    assert told == [
        "run 1 of 2: the original program",
        "run 2 of 2: the migrated program",
        "run 3 of 4: migrated, from the original's states, for lockstep (about 10 s left)",
        "run 4 of 4: original under rounding noise, for the loss curve (about 10 s left)",
        "run 5 of 5: migrated, resumed from the converted checkpoint (about 4 min left)",
    ]


def test_of_several_ranks_the_first_speaks() -> None:
    told: list[str] = []
    tracker = Tracker(told.append)
    for rank in range(2):
        tracker.began(spec("original").of_rank(rank, 2, 1))
    assert told == ["run 1 of 1: the original program"]


def test_drills_are_named() -> None:
    assert progress.purpose(spec("drill-overflow-original")) == "original, drill overflow"
