"""No run outlives the tool, and nothing stays behind: however it is ended, whatever the programs do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from textwrap import dedent

import pytest

from amp_migrate.verify import trees
from amp_migrate.verify.launch import Launcher
from amp_migrate.verify.record import Recording
from amp_migrate.verify.recording.spec import RunSpec
from tests.verify.test_trees import PROGRAM

ROOT = Path(__file__).parents[2]
ENDLESS = """
import subprocess, sys, time, torch
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
with open(sys.argv[1] + ".part", "w") as file:
    file.write(f"{child.pid}")
import os
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(1000)
"""


def heard() -> None:
    """Signals end a process again, also where the tests run in the background or under nohup, which ignore them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def alive(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait(condition: object, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what is in a session of its own is found in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_runs_end_with_the_tool(tmp_path: Path, number: signal.Signals) -> None:
    project, scratch, started = tmp_path / "project", tmp_path / "scratch", tmp_path / "started"
    project.mkdir()
    scratch.mkdir()
    (project / "train.py").write_text(ENDLESS)
    (project / "native.py").write_text(ENDLESS + "\n")
    with subprocess.Popen(
        [sys.executable, "-m", "amp_migrate", "verify", "train.py", "--migrated", "native.py", "--", str(started)],
        cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch), "OMP_NUM_THREADS": "1"},
        preexec_fn=heard,
    ) as tool:  # fmt: skip
        assert wait(started.exists), tool.communicate(timeout=1)
        assert len(list(scratch.glob("amp-migrate*"))) == 1
        os.killpg(tool.pid, number)  # as the terminal does
        said = tool.communicate(timeout=60)[0]
    assert tool.returncode == {signal.SIGINT: 130, signal.SIGKILL: -9}.get(number, 128 + number)
    assert said == ("amp-migrate: interrupted\n" if number == signal.SIGINT else "")
    assert wait(lambda: not list(scratch.glob("amp-migrate*")))
    assert wait(lambda: not alive(int(started.read_text())))


def record(folder: Path, code: str, files: dict[str, str], **environment: str) -> Recording:
    """One run of a program that stands in `folder/project` with `files` beside it."""
    project = folder / "project"
    for name, text in {"scripts/train.py": PROGRAM + dedent(code), **files}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    tree = trees.lay_out(project, folder / "tree")
    with Launcher(environment={"OMP_NUM_THREADS": "1", **environment}) as launcher:
        (recording,) = launcher.run(
            [
                RunSpec(
                    str(tree / "scripts" / "train.py"), (), str(tree), "migrated", str(folder / "run"), steps=4,
                    device="cpu", tree=str(tree), origin=str(project),
                )
            ]
        )  # fmt: skip
    return recording


@pytest.mark.slow
def test_what_a_program_detached_is_ended() -> None:
    """In a folder with a short name, as the tool has one: the path of a socket must fit behind it."""
    code = """
    import subprocess, tempfile
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    folder = tempfile.mkdtemp()
    step()
    print(child.pid, folder, flush=True)
    os._exit(0)
    """
    with tempfile.TemporaryDirectory() as folder:
        output = record(Path(folder), code, {}).output.split()
        assert wait(lambda: not alive(int(output[0])))
        assert wait(lambda: not Path(output[1]).exists())


@pytest.mark.skipif("select" in sys.builtin_module_names, reason="no file takes the place of what Python is built with")
@pytest.mark.slow
def test_modules_of_the_project_may_be_called_like_others(tmp_path: Path) -> None:
    code = """
    import select, profile, click
    assert (select.MINE, profile.MINE, click.MINE) == (1, 2, 3)
    import subprocess, types
    assert types.FunctionType
    subprocess.run(["true"], check=True)
    step()
    """
    files = {f"scripts/{name}.py": f"MINE = {n}" for n, name in enumerate(("select", "profile", "click"), 1)}
    files |= {f"{name}.py": "raise ImportError('not asked for')" for name in ("types", "select", "torch", "json")}
    recording = record(tmp_path, code, files)
    assert recording.trouble is None
    assert len(recording.attempts) == 1


@pytest.mark.slow
def test_the_module_path_leads_into_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'project'}{os.pathsep}{ROOT}")
    code = """
    import helper
    assert os.path.samefile(os.path.dirname(helper.__file__), os.getcwd())
    assert os.environ["DATA"] == os.path.join(os.getcwd(), "data"), os.environ["DATA"]
    assert sys.path[1] == os.getcwd()
    step()
    """
    recording = record(tmp_path, code, {"helper.py": ""}, DATA=str(tmp_path / "project" / "data"))
    assert recording.trouble is None


def test_a_module_of_the_current_folder_is_not_the_tools(tmp_path: Path) -> None:
    for name in ("click", "select", "pathspec", "torch", "libcst"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('of the project')\n")
    (tmp_path / "train.py").write_text("x = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "amp_migrate", "rewrite", "train.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
