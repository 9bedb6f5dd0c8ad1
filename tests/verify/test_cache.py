"""Reruns of the original are kept between verifications, and not used for another program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from amp_migrate.verify.cache import KEPT, Cache
from amp_migrate.verify.recording.spec import RunSpec
from tests.trust import programs
from tests.trust.programs import Regime

ROOT = Path(__file__).parents[2]


def spec(tree: Path, out: Path, **options: object) -> RunSpec:
    values = {"noise": 0.001, "noise_seed": 1, **options}
    return RunSpec(str(tree / "train.py"), ("--a",), str(tree), "original", str(out), 5, **values)  # type: ignore[arg-type]


def test_the_key_is_about_what_decides_the_run(tmp_path: Path) -> None:
    def key(name: str, code: str = "pass", **options: object) -> str:
        tree = tmp_path / name
        tree.mkdir()
        (tree / "train.py").write_text(code)
        return Cache(tmp_path / "cache").key(spec(tree, tmp_path / f"out-{name}", **options), tree)

    same = key("a")
    assert key("b") == same  # another place, the same program
    assert len({same, key("c", "pass  #"), key("d", seed=3), key("e", noise_seed=2), key("f", device="cpu")}) == 5


def test_records_come_back_and_the_oldest_go(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    done = spec(tmp_path, tmp_path / "done")
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "record.jsonl").write_text("{}\n")
    for number in range(KEPT + 3):
        cache.keep(f"k{number}", done)
        os.utime(cache.folder / f"k{number}.jsonl", (number, number))
    cache.keep("last", done)
    assert len(list(cache.folder.iterdir())) == KEPT
    again = spec(tmp_path, tmp_path / "again")
    assert not cache.fetch("k0", again)
    assert cache.fetch("last", again)
    assert (tmp_path / "again" / "record.jsonl").read_text() == "{}\n"


def test_an_unwritable_cache_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    Cache(tmp_path / "file" / "below").keep("k", spec(tmp_path, tmp_path))


def test_a_second_verification_reuses_the_reruns(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    (project / "train.py").write_text(programs.original(Regime()))
    (project / "native.py").write_text(programs.migrated(Regime()))

    def verify() -> str:
        done = subprocess.run(
            [sys.executable, "-m", "amp_migrate", "verify", "train.py", "--migrated", "native.py", "--steps", "4",
             "--drills", "none",
             "--device", "cpu"],
            cwd=project, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(home), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return next(line for line in done.stdout.splitlines() if "loss curve" in line)

    def kept() -> int:
        return len(list(home.rglob("*.jsonl")))

    first = verify()
    assert kept() == 3
    assert verify() == first
    assert kept() == 3
    (project / "train.py").write_text(programs.original(Regime(seed=5)))
    (project / "native.py").write_text(programs.migrated(Regime(seed=5)))
    verify()
    assert kept() == 6
