"""Whole projects: each folder of `fixtures/projects/` goes through `rewrite` and `verify` as its owner would do it.

`before/` is the project written for Apex, `after/` what `rewrite .` must leave behind, byte for byte.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli_testing import run

PROJECTS = Path(__file__).resolve().parent.parent / "fixtures" / "projects"
NAMES = sorted(path.name for path in PROJECTS.iterdir())


def files(tree: Path) -> dict[str, bytes]:
    return {
        p.relative_to(tree).as_posix(): p.read_bytes()
        for p in sorted(tree.rglob("*"))
        if p.is_file() and "__pycache__" not in p.parts and ".git" not in p.parts
    }


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project, with the mark that makes its folder the root; tests stand in it."""
    shutil.copytree(PROJECTS / "tagger" / "before", tmp_path / "tagger")
    (tmp_path / "tagger" / ".git").mkdir()
    monkeypatch.chdir(tmp_path / "tagger")
    return tmp_path / "tagger"


def test_every_project_is_tried_here() -> None:
    assert NAMES == ["tagger"]


def test_rewrite_leaves_what_its_maintainer_would_merge(project: Path) -> None:
    done = run("rewrite", "--format", "json", ".")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert files(project) == files(PROJECTS / "tagger" / "after")
    report = json.loads(done.stdout)
    migrated = {f["path"] for f in report["files"] if f["status"] == "migrated"}
    assert migrated == {"notebooks/overfit.ipynb", "tagger/trainer.py", "train.py"}
    assert report["summary"]["sites_manual"] == 0

    again = run("rewrite", ".")
    assert again.exit_code == 0
    assert files(project) == files(PROJECTS / "tagger" / "after")


def test_paths_narrower_than_the_unit_name_the_missing_file(project: Path) -> None:
    before = files(project)
    done = run("rewrite", "train.py")
    assert done.exit_code == 1
    assert "add tagger/trainer.py" in done.stdout
    assert files(project) == before


def test_check_finds_what_is_left_outside_python(project: Path) -> None:
    run("rewrite", ".")
    report = json.loads(run("check", "--format", "json", ".").stdout)
    left = {(f["path"], finding["line"]) for f in report["files"] for finding in f["findings"]}
    assert {("requirements.txt", 3), ("README.md", 6), ("README.md", 7)} <= left


def test_the_notebook_keeps_its_cells_outputs_and_magics() -> None:
    before, after = (
        json.loads((PROJECTS / "tagger" / which / "notebooks" / "overfit.ipynb").read_text("utf-8"))
        for which in ("before", "after")
    )
    for data in (before, after):
        for cell in data["cells"]:
            cell["code"] = "".join(cell.pop("source"))
    assert [{**c, "code": ""} for c in before["cells"]] == [{**c, "code": ""} for c in after["cells"]]
    assert "%autoreload 2\n" in after["cells"][1]["code"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["train.py", "--resume-args", "--resume {checkpoint}", "--steps", "12", "--", "--fp16", "--epochs", "1"],
        ["notebooks/overfit.ipynb", "--steps", "8"],
    ],
    ids=["script", "notebook"],
)
def test_verify_agrees(amp_migrate: Callable[..., Result], project: Path, arguments: list[str]) -> None:
    before = files(project)
    done = amp_migrate("verify", "--format", "json", "--device", "cpu", "--drills", "none", *arguments)
    assert done.exit_code == 0, done.stdout + done.stderr
    (case,) = json.loads(done.stdout)["cases"]
    assert case["result"] == "agrees"
    assert len(case["verdicts"]) == 5
    assert not case["notes"], "nothing was left to a person"
    assert files(project) == before
