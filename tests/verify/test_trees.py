"""Every run has a copy of the project of its own, and nothing of the user's is written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from textwrap import dedent

import pytest

from amp_migrate.verify import session, trees, written
from amp_migrate.verify.case import Case, Program
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


def runs(launcher: Launcher, folder: Path, code: str, *argv: str, count: int = 1, **options: object) -> list[Recording]:
    """Runs of a program that stands in the user's folder `folder/project`."""
    project = folder / "project"
    project.mkdir(exist_ok=True, parents=True)
    (project / "train.py").write_text(PROGRAM + dedent(code))
    tree = trees.lay_out(project, folder / "tree")
    return launcher.run(
        [
            RunSpec(
                str(tree / "train.py"), argv, str(tree), "migrated", str(folder / "runs" / f"run{n}"), steps=4, device="cpu",
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
    assert not (tmp_path / "runs" / "run0" / "tree").exists()


def test_a_run_may_go_on_where_another_left_its_files(launcher: Launcher, tmp_path: Path) -> None:
    code = """
    assert os.path.exists("config.json") == (len(sys.argv) > 1)
    open("config.json", "w").close()
    step()
    """
    (first,) = runs(launcher, tmp_path, code, keep_tree=True)
    assert first.trouble is None
    left = first.spec.own_tree
    assert left is not None
    assert (left / "config.json").exists()
    spec = RunSpec(
        str(tmp_path / "tree" / "train.py"), ("--resume",), str(tmp_path / "tree"), "migrated", str(tmp_path / "runs" / "again"),
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


@pytest.fixture
def linking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a folder of data, a large file, and an output folder that stands elsewhere."""
    monkeypatch.setattr(trees, "CROWDED", 5)
    monkeypatch.setattr(trees, "LARGE", 100)
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    (project / "data").mkdir(parents=True)
    elsewhere.mkdir()
    for number in range(6):
        (project / "data" / f"{number}.txt").write_text(str(number))
        (elsewhere / f"{number}.txt").write_text(str(number))
    (project / "log.bin").write_bytes(bytes(200))
    (project / "weights.bin").write_bytes(bytes(200))
    (project / "outputs").symlink_to(elsewhere)
    return tmp_path


def state(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_nothing_is_written_through_a_link(launcher: Launcher, linking: Path) -> None:
    code = """
    import shutil, sqlite3
    from pathlib import Path
    assert all(os.path.islink(p) for p in ("data", "log.bin", "weights.bin", "outputs"))
    with open("log.bin", "ab") as file:
        file.write(b"more")
    assert os.path.getsize("log.bin") == 204
    torch.save(model.state_dict(), "weights.bin")
    Path("data/new/deep").mkdir(parents=True)
    Path("data/0.txt").write_text("changed")
    os.remove("data/1.txt")
    os.rename("data/2.txt", "data/renamed.txt")
    assert Path("data/3.txt").read_text() == "3"
    torch.save(model.state_dict(), "outputs/best.pt")
    open("outputs/5.txt", "r+").write("9")
    sqlite3.connect("outputs/base.db").execute("create table t (x)")
    shutil.rmtree("outputs")
    os.makedirs("outputs/again")
    if os.fork() == 0:
        open("data/4.txt", "w").write("a worker's")
        os._exit(0)
    os.wait()
    step()
    """
    (linking / "project" / "train.py").write_text(PROGRAM + dedent(code))
    before = state(linking / "project"), state(linking / "elsewhere")
    recordings = runs(launcher, linking, code, count=2)
    assert [r.trouble for r in recordings] == [None, None]
    assert (state(linking / "project"), state(linking / "elsewhere")) == before


def test_absolute_paths_are_refused_in_the_project_and_reported_elsewhere(launcher: Launcher, linking: Path) -> None:
    code = f"""
    place = {str(linking)!r}
    for way in (lambda: open(place + "/project/new.txt", "w"), lambda: torch.save(1, place + "/project/log.bin"),
                lambda: os.remove(place + "/project/log.bin")):
        try:
            way()
        except PermissionError as error:
            assert "your project" in str(error)
        else:
            raise AssertionError
    with open(place + "/shared.txt", "a+") as file:
        file.write("x")
    open(place + "/shared.txt").close()
    torch.save(model.state_dict(), place + "/model.pt")
    import tempfile
    tempfile.NamedTemporaryFile().close()
    os.system("echo x >> outputs/5.txt")
    step()
    """
    before = state(linking / "project")
    stamps = written.stamps([trees.lay_out(linking / "project", linking / "look")])
    (recording,) = runs(launcher, linking, code)
    assert recording.trouble is None
    assert {k: v for k, v in state(linking / "project").items() if k != "train.py"} == before
    outside, changed = written.told(linking / "runs", stamps)
    assert (
        f"writes outside its folder, where all runs share what they find: {linking}/model.pt, {linking}/shared"
        in outside
    )
    assert f"it reads {linking}/shared.txt back" in outside
    assert (
        changed.endswith(f"out of sight of verify: {linking}/elsewhere/5.txt") or str(linking / "elsewhere") in changed
    )


def test_a_crash_shows_the_programs_own_traceback_with_the_users_paths(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "helper.py").write_text("def load(path):\n    return open(path)\n")
    code = """
    from helper import load
    step()
    try:
        load(os.path.abspath("data/train.csv"))
    except OSError as error:
        raise RuntimeError("no data") from error
    """
    (recording,) = runs(launcher, tmp_path, code)
    user = tmp_path / "project"
    said = "\n".join(recording.said())
    assert recording.trouble == f"raised RuntimeError: no data at {user}/train.py:16 after 1 step"
    assert said.startswith(f'Traceback (most recent call last):\n  File "{user}/train.py", line 14, in <module>')
    assert f'  File "{user}/helper.py", line 2, in load\n    return open(path)' in said
    assert f"FileNotFoundError: [Errno 2] No such file or directory: '{user}/data/train.csv'" in said
    assert said.endswith("RuntimeError: no data")
    assert "amp_migrate" not in said
    assert "runpy" not in said
    (recording,) = runs(launcher, tmp_path / "again", "print('out of disk', file=sys.stderr, flush=True)\nos._exit(3)")
    assert recording.said()[-1] == "out of disk"


def test_what_stands_beside_the_project_stands_beside_the_copy(launcher: Launcher, tmp_path: Path) -> None:
    place = tmp_path / "home" / "work"
    place.mkdir(parents=True)
    (place / "data.txt").write_text("1")
    (tmp_path / "home" / "sets").mkdir()
    (tmp_path / "home" / "sets" / "big.txt").write_text("2")
    code = """
    assert open("../data.txt").read() + open("../../sets/big.txt").read() == "12"
    open("../new.txt", "w").close()
    open("../../sets/log.txt", "w").close()
    step()
    raise ValueError(os.path.abspath("../data.txt"))
    """
    (recording,) = runs(launcher, place, code)
    assert recording.trouble is not None
    assert recording.trouble.startswith(f"raised ValueError: {place}/data.txt at {place}/project/train.py:")
    assert not (place / "new.txt").exists()
    (outside,) = written.told(place / "runs", {})
    assert outside.endswith(f"{tmp_path}/home/sets/log.txt")  # through a link that is none of the project's
    from amp_migrate.verify.recording.guard import told_of

    read = {path for what, path in told_of(place / "runs" / "run0" / "files.txt") if what == "R"}
    assert {str(place / "data.txt"), str(tmp_path / "home" / "sets" / "big.txt")} <= read


def test_places_of_the_original_are_those_of_the_migrated_tree_for_its_runs(tmp_path: Path) -> None:
    """A migrated tree stands elsewhere; PYTHONPATH and arguments still name the folder the user stands in."""
    for name in ("project", "native", "original-tree", "migrated-tree"):
        (tmp_path / name / "src").mkdir(parents=True)
    (tmp_path / "project" / "data").mkdir()
    programs = [
        Program(
            tmp_path / f"{side}-tree" / "a.py", tmp_path / f"{side}-tree", tmp_path / f"{side}-tree", tmp_path / origin
        )
        for side, origin in (("original", "project"), ("migrated", "native"))
    ]
    spec = Case("case", *programs).spec("migrated", tmp_path / "run")
    own = spec.own_tree
    assert own is not None
    shutil.copytree(tmp_path / "native", own)
    assert spec.moved(f"{tmp_path}/project/src") == f"{own}/src"
    assert spec.moved(f"--path={tmp_path}/native/src:{tmp_path}/project/src") == f"--path={own}/src:{own}/src"
    assert spec.moved(f"{tmp_path}/project/data") == f"{tmp_path}/project/data"  # not in the migrated tree
    assert spec.moved(f"{tmp_path}/projects") == f"{tmp_path}/projects"


def test_records_that_are_kept_leave_out_what_a_run_worked_with(tmp_path: Path) -> None:
    """A socket, which a process that loads data leaves behind, cannot be copied."""
    run = tmp_path / "runs" / "original"
    for name in ("tree", "tmp"):
        (run / name).mkdir(parents=True)
    (run / "spec.json").write_text("{}")
    os.mkfifo(run / "tmp" / "listener")
    shutil.copytree(tmp_path / "runs", tmp_path / "kept", ignore=session.not_kept)
    assert [path.name for path in (tmp_path / "kept" / "original").iterdir()] == ["spec.json"]
