"""`amp-migrate verify` as users call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result

from amp_migrate.verify import configuration, session
from amp_migrate.verify.case import VerifyError
from amp_migrate.verify.launch import Launcher
from amp_migrate.verify.session import folder_of
from tests.cli_testing import git
from tests.trust import programs
from tests.trust.programs import Regime

ROOT = Path(__file__).parents[2]
REGIME = Regime(optimizer="sgd", model="gelu", level="O2")


Verify = Callable[..., Result]


@pytest.fixture
def verify(amp_migrate: Callable[..., Result]) -> Verify:
    return partial(amp_migrate, "verify")


@pytest.fixture
def project(amp_migrate: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path = tmp_path / "project"
    tmp_path.mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(programs.original(REGIME))
    (tmp_path / "native.py").write_text(programs.migrated(REGIME))
    (tmp_path / "wrong.py").write_text(programs.migrated(REGIME, "missing unscale_"))
    return tmp_path


FEW = ("--steps", "6", "--device", "cpu", "--apex", "shim")
SHORT = (*FEW, "--drills", "none")


def test_one_screen(project: Path) -> None:
    command = [sys.executable, "-m", "amp_migrate", "verify", "train.py", "--migrated", "native.py", *FEW]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "train.py: agrees"
    assert [line.split()[1] for line in lines if line.startswith("  ok ")][:6] == [
        "lockstep", "scale", "precision", "loss", "checkpoint", "drill:",
    ]  # fmt: skip
    assert "  ok drill: overflow step 8, 9 skipped on both sides" in done.stdout
    assert "not drilled: accumulation-overflow (no step is made of several backward passes)" in done.stdout
    assert any(line.split()[:1] == ["fp32"] for line in lines)
    assert len(lines) < 40
    assert "a GPU has the last word" in lines[-1]


def test_a_disagreement_says_step_signal_distance_and_cause(verify: Verify, project: Path) -> None:
    done = verify("train.py", "--migrated", "wrong.py", *SHORT)
    assert done.exit_code == 1
    assert "train.py: DISAGREES" in done.stdout
    assert (
        "NO lockstep    step 0: gradient norm is 1.52588e-05 times the original's (1 / the loss scale, 65536)"
        in done.stdout
    )
    assert "likely: clipping reads scaled gradients: `scaler.unscale_(optimizer)` must come before it" in done.stdout


def test_json(verify: Verify, project: Path) -> None:
    done = verify("train.py", "--migrated", "native.py", "--format", "json", *SHORT)
    report = json.loads(done.stdout)
    assert report["version"] == 1
    (case,) = report["cases"]
    assert case["result"] == "agrees"
    assert [v["name"] for v in case["verdicts"]] == ["lockstep", "scale", "precision", "loss curve", "checkpoint"]
    assert {row["run"] for row in case["cost"]} == {"original", "migrated", "fp32"}


@pytest.mark.slow
def test_json_of_a_diverging_program_is_json(verify: Verify, project: Path) -> None:
    (project / "wrong.py").write_text(programs.migrated(REGIME).replace("y) / 1", "y) / 1 * float('nan')"))
    done = verify("train.py", "--migrated", "wrong.py", "--format", "json", *SHORT)
    assert done.exit_code == 1

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    (case,) = json.loads(done.stdout, parse_constant=refuse)["cases"]
    assert case["result"] == "disagrees"


@pytest.mark.slow
def test_resuming_through_the_scripts_own_code(verify: Verify, project: Path) -> None:
    arguments = (
        "--resume-args",
        "--resume {checkpoint}",
        "--resume-at",
        "4",
        "--steps",
        "8",
        "--device",
        "cpu",
        "--drills",
        "none",
    )
    done = verify("train.py", "--migrated", "native.py", *arguments)
    assert done.exit_code == 0, done.stdout
    assert "own checkpoint:" in done.stdout
    assert "converted Apex checkpoint:" in done.stdout
    (project / "native.py").write_text(programs.migrated(REGIME, "scaler state not restored"))
    done = verify("train.py", "--migrated", "native.py", *arguments)
    assert done.exit_code == 1
    assert "growth tracker 0, in the unbroken run" in done.stdout


@pytest.mark.parametrize("filters", [True, False], ids=["tarfile filters", "none of them"])
def test_the_original_from_git(verify: Verify, project: Path, filters: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not filters:  # as in Python 3.10.11 and 3.11.3
        monkeypatch.delattr("tarfile.data_filter", raising=False)
    git("init", folder=project)
    git("add", "train.py", folder=project)
    git("commit", "-m", "apex", folder=project)
    (project / "train.py").write_text((project / "native.py").read_text())
    done = verify("train.py", "--original-rev", "HEAD", *SHORT)
    assert done.exit_code == 0, done.stdout + done.stderr
    assert verify("train.py", "--original-rev", "nowhere", *SHORT).exit_code == 2


def test_nothing_to_compare(verify: Verify, project: Path) -> None:
    for arguments, says in (
        (("train.py", "--migrated", "train.py"), "the program and its migration are the same"),
        (("native.py",), "there is nothing to migrate. If the program has been migrated already, name the commit"),
    ):
        (project / "train.py").write_text(programs.migrated(REGIME))
        done = verify(*arguments, *SHORT)
        assert done.exit_code == 2
        assert f"nothing to compare: {says}" in done.stdout
        assert "agrees" not in done.stdout
    git("init", folder=project)
    git("add", ".", folder=project)
    git("commit", "-m", "migrated", folder=project)
    done = verify("train.py", "--original-rev", "HEAD", *SHORT)
    assert done.exit_code == 2
    assert "nothing to compare: the program is the same in HEAD and in the working tree" in done.stdout


def test_without_apex_there_is_nothing_to_compare(verify: Verify, project: Path) -> None:
    (project / "train.py").write_text(
        "import sys\nimport torch\nif '--fp16' in sys.argv:\n    from apex import amp\n"
        "model = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(9):\n    model(torch.ones(1, 2)).sum().backward()\n    optimizer.step()\n"
    )
    (project / "native.py").write_text(
        (project / "train.py").read_text().replace("    from apex import amp", "    pass")
    )
    done = verify("train.py", "--migrated", "native.py", *SHORT)
    assert done.exit_code == 2
    assert "nothing to compare: the original ran without Apex" in done.stdout


def test_without_migrated_the_project_is_rewritten(verify: Verify, project: Path) -> None:
    source = (ROOT / "fixtures" / "plain_script" / "before.py").read_text()
    (project / "train.py").write_text(source)
    done = verify("train.py", *SHORT)
    assert done.exit_code == 0, done.stdout + done.stderr
    assert (project / "train.py").read_text() == source


@pytest.mark.slow
def test_bfloat16_is_another_precision_unless_it_is_asked_for(verify: Verify, project: Path) -> None:
    (project / "train.py").write_text((ROOT / "fixtures" / "plain_script" / "before.py").read_text())
    done = verify("train.py", "--dtype", "bfloat16", *SHORT)
    assert done.exit_code == 0, done.stdout + done.stderr
    assert "8 significant bits where float16 has 11" in done.stdout
    (project / "pyproject.toml").write_text('[tool.amp-migrate]\ndtype = "bfloat16"\n')  # asks as well
    assert verify("train.py", *SHORT).exit_code == 0
    done = verify("train.py", "--dtype", "float16", *SHORT)
    assert done.exit_code == 0, done.stdout + done.stderr  # the command line comes before the configuration
    assert "8 significant bits" not in done.stdout
    (project / "pyproject.toml").unlink()
    (project / "native.py").write_text(programs.migrated(REGIME).replace("float16", "bfloat16"))
    done = verify("train.py", "--migrated", "native.py", *SHORT)
    assert done.exit_code == 1
    assert "in bfloat16, in the original in float16" in done.stdout
    assert "likely: bfloat16 in place of float16" in done.stdout


@pytest.mark.slow
def test_cases_of_the_configuration(verify: Verify, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lend, started = vars(session)["Launcher"], []
    monkeypatch.setattr(session, "Launcher", lambda **asked: started.append(asked) or lend(**asked))
    (project / "pyproject.toml").write_text(
        """
        [[tool.amp-migrate.verify]]
        name = "right"
        script = "train.py"
        migrated = "native.py"
        steps = 5
        device = "cpu"
        [[tool.amp-migrate.verify]]
        script = "train.py"
        migrated = "wrong.py"
        steps = 5
        device = "cpu"
        """
    )
    done = verify()
    assert done.exit_code == 1
    assert "right: agrees" in done.stdout
    assert "train.py: DISAGREES" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 of 2 cases agree"
    agreeing, *screen = done.stdout.splitlines()
    assert agreeing.split("agrees")[1].strip().startswith("10 steps; 10 in lockstep, error ")  # of two optimizers
    assert len(screen) > 10  # what disagrees is shown whole
    assert len(started) == 1  # torch is imported once for all of them


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing.py",), "no such file"),
        (("train.py", "--migrated", "nothing.py"), "no such file or folder"),
        (("train.py", "--migrated", "native.py", "--resume-args", "--resume"), "{checkpoint}"),
        (("train.py", "--migrated", "native.py", "--steps", "5", "--resume-at", "9"), "does not lie between"),
        (("train.py", "--migrated", "native.py", "--original-rev", "HEAD"), "exclude each other"),
        ((), "there is no pyproject.toml"),
    ],
)
def test_usage_errors(verify: Verify, project: Path, arguments: tuple[str, ...], says: str) -> None:
    done = verify(*arguments)
    assert done.exit_code == 2
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing.py",),
        ("train.py", "--resume-args", "--resume"),
        ("train.py", "--drills", "nothing"),
        ("train.py", "--", "--data", "FILL_IN:data"),
    ],
)
def test_no_process_is_started_for_a_command_line_that_means_nothing(
    verify: Verify, project: Path, launcher: Launcher, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    def started(*given: object) -> None:
        raise AssertionError

    for name in ("warm_up", "run"):
        monkeypatch.setattr(launcher, name, started)
    done = verify(*arguments)
    assert done.exit_code == 2, done.stdout


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("script = 3", "script has the wrong type"),
        ("steps = 5", "script is missing"),
        ('script = "train.py"\nstep = 5', "unknown key 'step'"),
        ('script = "train.py"\ndtype = "half"', "dtype is one of float16, bfloat16, not 'half'"),
        ("script = ", "pyproject.toml"),
    ],
)
def test_configuration_errors(verify: Verify, project: Path, table: str, says: str) -> None:
    (project / "pyproject.toml").write_text(f"[[tool.amp-migrate.verify]]\n{table}\n")
    done = verify()
    assert done.exit_code == 2
    assert says in done.stderr


@pytest.mark.slow
def test_the_report_is_one_file_without_network(verify: Verify, project: Path) -> None:
    pytest.importorskip("matplotlib")
    done = verify("train.py", "--migrated", "wrong.py", "--report", "report.html", *SHORT)
    assert done.exit_code == 1
    page = (project / "report.html").read_text()
    assert page.count("<svg") == 4
    for outside in ("src=", "<link", "@import", 'href="http', "url(http"):
        assert outside not in page
    assert "-        scaler.unscale_" not in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    assert 'does not train as before</h1><p class="caveat">Judged on a CPU' in page
    for known in ("amp-migrate ", "torch ", "python ", " UTC"):
        assert known in page
    assert "<b>Likely cause:</b> clipping reads scaled gradients: <code>scaler.unscale_(optimizer)</code>" in page
    lockstep = page.split("<b>lockstep</b>")[1]
    assert lockstep.index("Likely:") < lockstep.index("gradient norm is")
    assert "What this did not see" in page
    assert '<div class="row add ran">' in page
    assert '<div class="row add not" title="did not run">' in page  # how it resumes


def test_cases_of_one_script_are_told_apart(tmp_path: Path) -> None:
    table = '[[tool.amp-migrate.verify]]\nscript = "train.py"\n'
    other = table.replace("train", "sub/train")
    more = 'args = ["--data", "a b"]\n'
    (tmp_path / "pyproject.toml").write_text(table + table + more + table + more + other + 'name = "other"\n' + other)
    names = [case.name for case in configuration.load(tmp_path)]
    assert names == ["train.py", "train.py --data 'a b'", "train.py --data 'a b' (2)", "other", "sub/train.py"]
    assert len({folder_of(name) for name in names}) == 5
    assert folder_of("/home/me/train.py") == folder_of("train.py") == "train.py"
    assert folder_of("../..") == "case"


def test_records_that_cannot_be_kept_are_told_and_the_verdict_is_printed(verify: Verify, project: Path) -> None:
    (project / "kept").mkdir()
    (project / "kept/train.py").write_text("a file in place of the folder")
    (project / "page.html").write_text("<!-- amp-migrate: report -->\n")
    keep = ("--keep", "kept", "--report", "page.html")
    result = verify("train.py", "--migrated", "native.py", *SHORT, *keep)
    assert result.exit_code == 2
    assert result.stdout.startswith("train.py: agrees\n")
    assert result.stderr.startswith("amp-migrate verify: --keep kept: file exists; not all records are there\n")
    assert (project / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize("error", [VerifyError("train.py cannot be rewritten"), OSError(28, "No space left on device")])
def test_a_full_disk_below_the_copies_is_named(
    verify: Verify, project: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(session.programs, "prepare", full)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=4096))
    result = verify("train.py", *SHORT)
    assert result.exit_code == 2
    assert "copies of the programs run, is full: name a folder with room in TMPDIR" in " ".join(result.stdout.split())
