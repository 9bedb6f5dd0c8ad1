"""Every run has a copy of the project of its own, and nothing of the user's is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from amp_migrate.verify import trees
from amp_migrate.verify.launch import Launcher
from amp_migrate.verify.record import Recording
from amp_migrate.verify.recording.spec import RunSpec

PROGRAM = """
import os, sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher(parallel=2, environment={"OMP_NUM_THREADS": "1"}) as launcher:
        yield launcher


def runs(launcher: Launcher, folder: Path, code: str, *argv: str, count: int = 1, **options: object) -> list[Recording]:
    """Runs of a program that stands in the user's folder `folder/project`."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "train.py").write_text(PROGRAM + dedent(code))
    tree = trees.lay_out(project, folder / "tree")
    return launcher.run(
        [
            RunSpec(
                str(tree / "train.py"), argv, str(tree), "migrated", str(folder / f"run{n}"), steps=4, device="cpu",
                tree=str(tree), origin=str(project), **options,  # type: ignore[arg-type]
            )
            for n in range(count)
        ]
    )  # fmt: skip


def test_a_program_that_resumes_by_itself_starts_afresh_in_every_run(launcher: Launcher, tmp_path: Path) -> None:
    code = """
    if os.path.exists("last.pt"):
        model.load_state_dict(torch.load("last.pt"))
    for _ in range(3):
        step()
    torch.save(model.state_dict(), "last.pt")
    """
    first, second, third = runs(launcher, tmp_path, code, count=3)
    assert first.trouble is None
    assert len(first.losses()) == 3
    assert first.losses() == second.losses() == third.losses()
    assert not (tmp_path / "project" / "last.pt").exists()
    assert not (tmp_path / "run0" / "tree").exists()


def test_a_run_may_go_on_where_another_left_its_files(launcher: Launcher, tmp_path: Path) -> None:
    code = """
    assert os.path.exists("config.json") == (len(sys.argv) > 1)
    open("config.json", "w").close()
    step()
    """
    (first,) = runs(launcher, tmp_path, code, keep_tree=True)
    assert first.trouble is None
    left = tmp_path / "run0" / "tree"
    assert (left / "config.json").exists()
    spec = RunSpec(
        str(tmp_path / "tree" / "train.py"), ("--resume",), str(tmp_path / "tree"), "migrated", str(tmp_path / "again"),
        steps=4, device="cpu", tree=str(tmp_path / "tree"), continues=str(left),
    )  # fmt: skip
    (second,) = launcher.run([spec])
    assert second.trouble is None


def test_arguments_that_name_places_of_the_project_name_those_of_the_copy(launcher: Launcher, tmp_path: Path) -> None:
    code = """
    os.makedirs(sys.argv[1], exist_ok=True)
    open(sys.argv[2].split("=")[1], "w").close()
    assert sys.argv[3] == "/etc/hosts"
    step()
    """
    project = tmp_path / "project"
    (recording,) = runs(launcher, tmp_path, code, f"{project}/out", f"--log={project}/log.txt", "/etc/hosts")
    assert recording.trouble is None
    assert sorted(p.name for p in project.iterdir()) == ["train.py"]


def test_what_is_copied_and_what_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "CROWDED", 5)
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project / "data", project / "env", project / "mine", elsewhere / "out", elsewhere / "set"):
        folder.mkdir(parents=True)
    (project / "mine" / "pyvenv.cfg").touch()
    (project / "env" / "game.py").touch()
    (project / "weights.bin").write_bytes(bytes(trees.LARGE + 1))
    for number in range(6):
        (project / "data" / f"{number}.jpg").touch()
        (elsewhere / "set" / f"{number}.jpg").touch()
    (elsewhere / "out" / "best.txt").write_text("1")
    (project / "outputs").symlink_to(elsewhere / "out")
    (project / "set").symlink_to(elsewhere / "set")
    (project / "self").symlink_to(project)
    tree = trees.lay_out(project, tmp_path / "tree")
    assert {p.name for p in tree.iterdir() if p.is_symlink()} == {"data", "weights.bin", "set", "self"}
    assert (tree / "outputs" / "best.txt").read_text() == "1"  # small, so its own: whatever writes there
    assert (tree / "env" / "game.py").exists()  # no virtual environment, for all its name
    assert not (tree / "mine").exists()
    assert dict(trees.links(tree))[tree / "data"] == project / "data"
    copy = trees.again(tree, tmp_path / "again")
    assert (copy / "data").is_symlink()
