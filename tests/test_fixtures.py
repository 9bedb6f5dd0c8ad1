"""Whole training programs: the migration a maintainer would merge, and proof that it still trains.

Each folder of `fixtures/` holds `before.py` (Apex), `after.py` (what `rewrite` must produce, byte for byte) and
`notes.toml`: `summary`, `shape`, `args` (for a quick run), `manual` (what a reviewer should know) and, where the
tool must refuse, `expect = "blocked"`.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/before.py"))
LOSS = re.compile(r"^epoch \d+ loss (\S+)", re.MULTILINE)

# Runs argv[1] as a script on the CPU: what it asks of device type "cuda" is done by CPU autocast in float16 and by
# a live GradScaler, so that scaling, unscaling and skipping really happen.
ON_CPU = """
import runpy, sys, warnings
import torch

torch.set_num_threads(1)

class autocast(torch.autocast):
    def __init__(self, device_type, *args, **kwargs):
        super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)

class GradScaler(torch.amp.GradScaler):
    def __init__(self, device="cuda", *args, **kwargs):
        super().__init__("cpu" if device == "cuda" else device, *args, **kwargs)

torch.autocast = torch.amp.autocast = autocast
torch.amp.GradScaler = GradScaler
sys.argv = sys.argv[1:]
for category in (FutureWarning, DeprecationWarning):
    warnings.filterwarnings("error", category=category, module="__main__")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def notes(name: str) -> dict[str, Any]:
    return tomllib.loads((FIXTURES / name / "notes.toml").read_text(encoding="utf-8"))


def text(name: str, which: str) -> str:
    return (FIXTURES / name / f"{which}.py").read_text(encoding="utf-8")


def rewrite(source: str, folder: Path) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON report and the text left behind when `source` is rewritten in place."""
    path = folder / "train.py"
    path.write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "amp_migrate", "rewrite", "--format", "json", "train.py"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert run.returncode in (0, 1), run.stderr
    return run.returncode, json.loads(run.stdout), path.read_text(encoding="utf-8")


def manual(report: dict[str, Any]) -> list[str]:
    found = (finding for file in report["files"] for finding in file["findings"])
    return [f"{f['line']}: {f['code']} {f['message']}" for f in found if f["status"] == "manual"]


def test_there_are_enough_programs() -> None:
    assert len(NAMES) >= 34


@pytest.mark.parametrize("name", NAMES)
def test_notes_say_what_the_program_is(name: str) -> None:
    said = notes(name)
    assert said["summary"]
    assert said["shape"]
    assert said.get("expect", "migrated") in ("migrated", "blocked")
    assert (text(name, "before") == text(name, "after")) == (said.get("expect") == "blocked")


@pytest.mark.parametrize("name", NAMES)
def test_rewrite_gives_what_a_maintainer_would_merge(name: str, tmp_path: Path) -> None:
    code, report, written = rewrite(text(name, "before"), tmp_path)
    assert written == text(name, "after"), manual(report)
    if notes(name).get("expect") == "blocked":
        assert code == 1
        assert [file["status"] for file in report["files"]] == ["blocked"]
        assert manual(report)
    else:
        assert not manual(report)
        assert code == 0
        assert [file["status"] for file in report["files"]] == ["migrated"]


@pytest.mark.parametrize("name", NAMES)
def test_a_second_run_changes_nothing(name: str, tmp_path: Path) -> None:
    after = text(name, "after")
    code, report, written = rewrite(after, tmp_path)
    assert written == after
    if notes(name).get("expect") != "blocked":
        assert code == 0, manual(report)


@pytest.mark.parametrize("name", NAMES)
def test_both_programs_parse_and_are_free_of_lint(name: str) -> None:
    for which in ("before", "after"):
        ast.parse(text(name, which))
    command = [sys.executable, "-m", "pyflakes", str(FIXTURES / name / "after.py")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", NAMES)
def test_apex_is_gone(name: str) -> None:
    names = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(text(name, "after")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert any((n or "").split(".")[0] == "apex" for n in names) == (notes(name).get("expect") == "blocked")


@pytest.mark.parametrize("name", [n for n in NAMES if notes(n).get("expect") != "blocked"])
def test_the_migrated_program_trains(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ON_CPU, str(FIXTURES / name / "after.py"), *notes(name).get("args", [])]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    losses = [float(value) for value in LOSS.findall(run.stdout)]
    assert len(losses) >= 2, run.stdout
    assert losses[-1] < 0.9 * losses[0], run.stdout
