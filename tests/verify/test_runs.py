"""Programs that do not train, or end in every odd way: a clear verdict, never a hang, nothing written beside them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from amp_migrate.verify.case import Case, Program
from amp_migrate.verify.judge import judge
from amp_migrate.verify.launch import Launcher, LaunchError, Limits
from amp_migrate.verify.record import Recording, read
from amp_migrate.verify.recording.spec import RunSpec

TRAINING = """
import os, sys, torch
import torch.nn.functional as F
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(scale=1.0):
    optimizer.zero_grad()
    loss = F.mse_loss(model(torch.randn(8, 4)), torch.zeros(8, 2)) * scale
    loss.backward()
    optimizer.step()
    return loss.item()
"""


@pytest.fixture
def impatient(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """Gives up on what makes no step for a few seconds."""
    monkeypatch.setattr(launcher, "limits", Limits(step=3.0, total=60.0))
    return launcher


def record(launcher: Launcher, folder: Path, code: str, *, steps: int = 5, **options: object) -> Recording:
    script = folder / "train.py"
    script.write_text(TRAINING + dedent(code))
    (recording,) = launcher.run(
        [
            RunSpec(
                script=str(script),
                argv=("--flag", "value with blanks"),
                cwd=str(folder),
                side="migrated",
                out=str(folder / "out"),
                steps=steps,
                device="cpu",
                **options,  # type: ignore[arg-type]
            )
        ]
    )
    return recording


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("step(); raise ValueError('no data')", "raised ValueError: no data at"),
        ("step(); sys.exit(3)", "called sys.exit(3) after 1 step"),
        ("step(); sys.exit('bad config')", "called sys.exit('bad config')"),
        ("step(); os._exit(5)", "left with status 5, past Python's own end (os._exit?), after 1 step"),
        ("step(); os.kill(os.getpid(), 11)", "was killed by signal 11 after 1 step"),
        ("pass", "ended without a single optimizer step"),
        ("sys.exit(0)", "ended without a single optimizer step"),
        ("import nowhere_to_be_found", "raised ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("def broken(:", "raised SyntaxError"),
        ("import apex", "raised ModuleNotFoundError"),
        ("def deep(): deep()\ndeep()", "raised RecursionError"),
    ],
)
def test_what_stopped_it_is_said(launcher: Launcher, tmp_path: Path, code: str, says: str) -> None:
    trouble = record(launcher, tmp_path, code).trouble
    assert trouble is not None
    assert says in trouble


@pytest.mark.parametrize("code", ["step()\nimport time\ntime.sleep(1000)", "step()\nwhile True: pass"])
def test_a_hanging_program_is_stopped(impatient: Launcher, tmp_path: Path, code: str) -> None:
    trouble = record(impatient, tmp_path, code).trouble
    assert trouble is not None
    assert "made no step for 3 s" in trouble


def test_a_long_evaluation_does_not_hang(impatient: Launcher, tmp_path: Path) -> None:
    code = "import time\nstep()\nend = time.monotonic() + 5\nwhile time.monotonic() < end: model(torch.randn(4, 4))"
    assert record(impatient, tmp_path, code).trouble is None


def test_an_endless_program_is_stopped(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "limits", Limits(step=60.0, total=3.0))
    trouble = record(launcher, tmp_path, "while True: step()", steps=10**9).trouble
    assert trouble is not None
    assert "did not finish within 3 s" in trouble


@pytest.mark.slow
def test_another_process_starts_the_runs_where_one_has_died(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    with Launcher(environment={"OMP_NUM_THREADS": "1"}) as launcher:
        with pytest.raises(LaunchError, match="the process that starts the runs has died"):
            record(launcher, tmp_path / "first", "os.kill(os.getppid(), 9)\nimport time\ntime.sleep(1000)")
        assert len(record(launcher, tmp_path, "step()").attempts) == 1


def test_there_is_nobody_to_answer_a_question(launcher: Launcher, tmp_path: Path) -> None:
    trouble = record(launcher, tmp_path, "input('which GPU? ')").trouble
    assert trouble is not None
    assert "EOFError" in trouble


def test_it_stops_after_the_steps_asked_for(launcher: Launcher, tmp_path: Path) -> None:
    recording = record(launcher, tmp_path, "while True: step()", steps=7)
    assert recording.trouble is None
    assert len(recording.attempts) == 7


def test_a_shorter_program_is_recorded_whole(launcher: Launcher, tmp_path: Path) -> None:
    recording = record(launcher, tmp_path, "step(); step(); sys.exit()", steps=7)
    assert recording.trouble is None
    assert len(recording.attempts) == 2


def test_bare_except_does_not_keep_it_alive(launcher: Launcher, tmp_path: Path) -> None:
    recording = record(
        launcher, tmp_path, "while True:\n    try:\n        step()\n    except BaseException:\n        pass", steps=3
    )
    assert len(recording.attempts) == 3


def test_binary_output_chdir_and_arguments(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    code = r"""
    assert sys.argv[1:] == ["--flag", "value with blanks"], sys.argv
    assert __name__ == "__main__"
    assert os.path.basename(__file__) == "train.py"
    os.chdir("elsewhere")
    os.write(1, bytes(range(256)) * 50)
    sys.stderr.buffer.write(b"\xff\xfe")
    for _ in range(3): step()
    print("accuracy: 71.5%")
    """
    recording = record(launcher, tmp_path, code)
    assert recording.trouble is None
    assert len(recording.attempts) == 3
    assert recording.output.rstrip().endswith("accuracy: 71.5%")


def test_forked_children_leave_the_record_alone(launcher: Launcher, tmp_path: Path) -> None:
    code = """
    from torch.utils.data import DataLoader, TensorDataset
    for batch in DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=2, num_workers=2):
        step()
    if os.fork() == 0:
        step()
        sys.exit(9)
    os.wait()
    step()
    """
    recording = record(launcher, tmp_path, code, steps=10)
    assert recording.trouble is None
    assert len(recording.attempts) == 5


def test_processes_it_leaves_behind_are_ended(launcher: Launcher, tmp_path: Path) -> None:
    code = """
    import subprocess
    child = subprocess.Popen(["sleep", "1000"])
    open("pid", "w").write(str(child.pid))
    step()
    os._exit(0)
    """
    record(launcher, tmp_path, code)
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the process lives on")


def test_a_torn_record_is_read_as_far_as_it_goes(launcher: Launcher, tmp_path: Path) -> None:
    recording = record(launcher, tmp_path, "for _ in range(4): step()")
    file = recording.folder / "record.jsonl"
    file.write_text(file.read_text()[:-30])
    again = read(recording.spec, -9)
    assert len(again.attempts) == 4
    assert again.trouble is not None
    assert "killed by signal 9" in again.trouble


def test_the_same_seed_gives_the_same_record(launcher: Launcher, tmp_path: Path) -> None:
    code = "import random, numpy\nfor _ in range(4): step(1 + random.random() + numpy.random.rand())"
    runs = [
        record(launcher, folder, code).losses() for folder in (tmp_path / "a", tmp_path / "b") if not folder.mkdir()
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 4


def pair(folder: Path, original: str, migrated: str) -> Case:
    for side, code in (("original", original), ("migrated", migrated)):
        (folder / side).mkdir()
        (folder / side / "train.py").write_text(TRAINING + dedent(code))
    programs = [Program(folder / side / "train.py", folder / side) for side in ("original", "migrated")]
    return Case("case", programs[0], programs[1], steps=5, device="cpu", apex="shim")


FINE = "for _ in range(5): step()"


@pytest.mark.parametrize(
    ("original", "migrated", "code", "says"),
    [
        (FINE, FINE, 0, ""),
        ("raise ValueError('x')", FINE, 2, "the original program raised ValueError"),
        ("pass", FINE, 2, "without a single optimizer step"),
        (FINE, "raise ValueError('x')", 1, "the migrated program raised ValueError"),
        (FINE, "pass", 1, "without a single optimizer step"),
        (FINE, "for _ in range(3): step()", 1, "5 steps in the original, 3 in the migrated program"),
        (FINE, "torch.randn(1)\nfor _ in range(5): step()", 1, "different batches"),
        ("torch.seed()\n" + FINE, "torch.seed()\n" + FINE, 2, "its data does not follow the seed"),
        ("for _ in range(5): step(float('nan'))", FINE, 2, "the original program diverges"),
    ],
)
def test_every_case_ends_in_a_verdict(
    launcher: Launcher, tmp_path: Path, original: str, migrated: str, code: int, says: str
) -> None:
    outcome = judge(pair(tmp_path, original, migrated), launcher, tmp_path / "runs")
    assert outcome.exit_code == code, (outcome.trouble, outcome.verdicts)
    assert says in (outcome.trouble or "") + " ".join(v.summary for v in outcome.verdicts)


def test_a_migrated_program_that_hangs_is_not_judged(impatient: Launcher, tmp_path: Path) -> None:
    outcome = judge(pair(tmp_path, FINE, "step()\nwhile True: pass"), impatient, tmp_path / "runs")
    assert outcome.exit_code == 2
    assert "made no step for 3 s" in str(outcome.trouble)


@pytest.mark.slow
def test_nothing_is_written_beside_the_script(tmp_path: Path) -> None:
    """Through the command: the programs write a checkpoint, and run in copies."""
    cache, tmp_path = tmp_path / "cache", tmp_path / "project"
    tmp_path.mkdir()
    writes = TRAINING + "for _ in range(5): step()\ntorch.save(model.state_dict(), 'model.pt')\nopen('log', 'w')\n"
    apex = "from apex import amp\nmodel, optimizer = amp.initialize(model, optimizer, opt_level='O0', verbosity=0)\n"
    (tmp_path / "train.py").write_text(writes.replace("def step", apex + "def step"))
    (tmp_path / "native.py").write_text(writes)
    before = sorted(tmp_path.rglob("*"))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "XDG_CACHE_HOME": str(cache)}
    command = ["verify", "train.py", "--migrated", "native.py", "--steps", "4", "--device", "cpu", "--drills", "none"]
    done = subprocess.run(
        [sys.executable, "-m", "amp_migrate", *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(tmp_path.rglob("*")) == before
