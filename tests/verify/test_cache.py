"""Reruns of the original are kept between verifications, and not used for another program."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from amp_migrate.verify.cache import KEPT, Cache
from amp_migrate.verify.recording.spec import RunSpec
from tests.trust import programs
from tests.trust.programs import Regime


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


def test_the_key_is_about_the_environment_of_the_programs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()

    def key() -> str:
        return Cache(tmp_path / "cache").key(spec(tmp_path, tmp_path / "out"), tmp_path)

    before = key()
    monkeypatch.setenv("BATCH_SIZE", "16")
    assert key() != before
    monkeypatch.delenv("BATCH_SIZE")
    monkeypatch.setenv("OLDPWD", "/elsewhere")
    assert key() == before


def kept(tmp_path: Path, *read: Path) -> tuple[Cache, RunSpec]:
    """A cache with one record, k, of a run that read these files."""
    cache, done = Cache(tmp_path / "cache"), spec(tmp_path, tmp_path / "runs" / "done")
    Path(done.out).mkdir(parents=True, exist_ok=True)
    (Path(done.out) / "record.jsonl").write_text("{}\n")
    (Path(done.out) / "files.txt").write_text("".join(f"R {path}\n" for path in read))
    cache.keep("k", done)
    return cache, spec(tmp_path, tmp_path / "runs" / "again")


def test_a_record_holds_while_the_files_that_were_read_stay_as_they_are(tmp_path: Path) -> None:
    data, missing = tmp_path / "data.csv", tmp_path / "cached.pt"
    data.write_text("1")
    cache, again = kept(tmp_path, data, missing, Path("/proc/self/stat"), tmp_path / "runs" / "other" / "saved.pt")
    assert cache.fetch("k", again)
    data.write_text("12")
    assert not cache.fetch("k", again)
    assert not list(cache.folder.iterdir())
    cache, again = kept(tmp_path, data, missing)
    missing.touch()  # was looked for in vain
    assert not cache.fetch("k", again)


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"{}\n{}\n", b'{"kind": "step"', b"[]\n"])
def test_a_damaged_record_is_as_good_as_none(tmp_path: Path, damage: bytes) -> None:
    cache, again = kept(tmp_path)
    file = cache.folder / "k.jsonl"
    file.write_bytes(damage)
    assert not cache.fetch("k", again)
    cache, again = kept(tmp_path)
    file.write_bytes(file.read_bytes()[:-1])
    assert not cache.fetch("k", again)
    assert not file.exists()


def test_an_unwritable_cache_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("as it was")
    cache, ran = Cache(tmp_path / "file" / "below"), spec(tmp_path, tmp_path)
    cache.keep("k", ran)
    assert not cache.fetch("k", ran)
    assert (tmp_path / "file").read_text() == "as it was"


@pytest.mark.slow
def test_a_second_verification_reuses_the_reruns(
    amp_migrate: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "train.py").write_text(programs.original(Regime()))
    (project / "native.py").write_text(programs.migrated(Regime()))

    def verify(*more: str) -> str:
        command = "verify train.py --migrated native.py --steps 4 --drills none --device cpu".split()
        done = amp_migrate(*command, *more)
        assert done.exit_code == 0, done.stdout + done.stderr
        return next(line for line in done.stdout.splitlines() if "loss curve" in line)

    def count() -> int:
        return len(list((tmp_path / ".cache").rglob("*.jsonl")))

    first = verify()
    assert count() == 3
    assert verify("--keep", str(tmp_path / "runs")) == first
    assert count() == 3
    assert not (tmp_path / "runs" / "train.py" / "rerun0" / "stdout.txt").exists()
    assert verify("--no-cache", "--keep", str(tmp_path / "whole")) == first
    assert (tmp_path / "whole" / "train.py" / "rerun0" / "stdout.txt").exists()
    (project / "train.py").write_text(programs.original(Regime(seed=5)))
    (project / "native.py").write_text(programs.migrated(Regime(seed=5)))
    verify()
    assert count() == 6
