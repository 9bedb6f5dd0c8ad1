"""`amp-migrate rewrite --verify`: rewritten, verified and reported in one go; what disagrees is not written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases.test_init import Command, project

ROOT = Path(__file__).parents[2]
PLAIN = (ROOT / "fixtures" / "plain_script" / "before.py").read_text()
CLIPS_INSIDE = (ROOT / "fixtures" / "clip_inside_with" / "before.py").read_text()  # trains differently, as is announced
CASES = '[[tool.amp-migrate.verify]]\nscript = "train.py"\nsteps = 6\ndevice = "cpu"\ndrills = "none"\n'


def test_what_agrees_is_written(amp_migrate: Command, tmp_path: Path) -> None:
    project(tmp_path, {"train.py": PLAIN, "pyproject.toml": CASES, "other.py": "x = 1\n"})
    done = amp_migrate("rewrite", "--verify", ".")
    assert done.exit_code == 0, done.stderr
    assert "Apex sites migrated in 1 file" in done.stdout
    assert "train.py: agrees" in done.stderr
    assert "torch.amp.GradScaler" in (tmp_path / "train.py").read_text()
    assert "Next:" not in done.stdout + done.stderr
    assert sorted(p.name for p in tmp_path.iterdir() if p.name[0] != ".") == ["other.py", "pyproject.toml", "train.py"]


def test_what_disagrees_is_not(amp_migrate: Command, tmp_path: Path) -> None:
    project(tmp_path, {"train.py": CLIPS_INSIDE, "pyproject.toml": CASES})
    done = amp_migrate("rewrite", "--verify", ".")
    assert done.exit_code == 1
    assert "train.py: DISAGREES" in done.stderr
    assert "likely: the original clips gradients that still carry the loss scale" in done.stderr
    assert "not written, because the migrated program does not train as the original does" in done.stdout
    assert (tmp_path / "train.py").read_text() == CLIPS_INSIDE


def test_what_could_not_be_judged_is_written_and_said(amp_migrate: Command, tmp_path: Path) -> None:
    project(tmp_path, {"train.py": "import sys\nif sys.argv[1:] != ['ok']:\n    sys.exit('no data')\n" + PLAIN})
    done = amp_migrate("rewrite", "--verify", "--run", "train.py 'not ok'", "--format", "json", ".")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["files"][0]["status"] == "migrated"
    assert "could not be judged" in done.stderr
    assert "no data" in done.stderr
    assert "torch.amp.GradScaler" in (tmp_path / "train.py").read_text()


@pytest.mark.parametrize("arguments", [("--verify", "--diff", "."), ("--run", "train.py", "."), ("--verify", "-")])
def test_usage_errors(amp_migrate: Command, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    project(tmp_path, {"train.py": PLAIN})
    assert amp_migrate("rewrite", *arguments).exit_code == 2
    assert (tmp_path / "train.py").read_text() == PLAIN


def test_without_cases_nothing_is_known(amp_migrate: Command, tmp_path: Path) -> None:
    project(tmp_path, {"train.py": PLAIN})
    done = amp_migrate("rewrite", "--verify", ".")
    assert done.exit_code == 2
    assert "there is no pyproject.toml; name one with --run, or have cases written by" in done.stderr
    assert (tmp_path / "train.py").read_text() == PLAIN
