"""Whole training programs: the migration a maintainer would merge, and proof that it still trains.

Each folder of `fixtures/` holds `before.py` (Apex), `after.py` (what `rewrite` must produce, byte for byte) and
`notes.toml`: `summary`, `shape`, `args` (for a quick run), `manual` (what a reviewer should know) and, where the
tool must refuse, `expect = "blocked"`.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyflakes.api import check  # type: ignore[import-untyped]
from pyflakes.reporter import Reporter  # type: ignore[import-untyped]

from amp_migrate.cli import main
from amp_migrate.shim import child_environment
from tests.nursery import Nursery

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/before.py"))
LOSS = re.compile(r"^epoch \d+ loss (\S+)", re.MULTILINE)

Runner = Callable[[str, list[str], Path], tuple[int, str, str]]


@pytest.fixture(scope="module")
def train() -> Iterator[Runner]:
    """Run a program written for CUDA on the CPU: exit status, standard output, standard error.

    A warning about deprecated names that the program itself causes is an error.
    """
    strict = ",".join(f"error::{category}:__main__" for category in ("FutureWarning", "DeprecationWarning"))
    with Nursery({"PYTHONWARNINGS": strict, **child_environment("shim", "cpu")}) as nursery:
        yield nursery.run


def notes(name: str) -> dict[str, Any]:
    return tomllib.loads((FIXTURES / name / "notes.toml").read_text(encoding="utf-8"))


def text(name: str, which: str) -> str:
    return (FIXTURES / name / f"{which}.py").read_text(encoding="utf-8")


def rewrite(source: str, folder: Path) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON report and the text left behind when `source` is rewritten in place."""
    path = folder / "train.py"
    path.write_text(source, encoding="utf-8")
    run = CliRunner().invoke(main, ["rewrite", "--format", "json", str(path)])
    assert run.exit_code in (0, 1), run.output
    return run.exit_code, json.loads(run.stdout), path.read_text(encoding="utf-8")


def manual(report: dict[str, Any]) -> list[str]:
    found = (finding for file in report["files"] for finding in file["findings"])
    return [f"{f['line']}: {f['code']} {f['message']}" for f in found if f["status"] == "manual"]


MIGRATED = [name for name in NAMES if notes(name).get("expect") != "blocked"]


def test_there_are_enough_programs() -> None:
    assert len(MIGRATED) >= 34


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
def test_both_programs_parse_and_the_result_is_free_of_lint(name: str) -> None:
    ast.parse(text(name, "before"))
    said = io.StringIO()
    assert check(text(name, "after"), name, Reporter(said, said)) == 0, said.getvalue()


@pytest.mark.parametrize("name", MIGRATED)
def test_apex_is_gone(name: str) -> None:
    for node in ast.walk(ast.parse(text(name, "after"))):
        if isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] == "apex" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] != "apex"


@pytest.mark.parametrize("name", MIGRATED)
def test_the_migrated_program_trains(name: str, train: Runner, tmp_path: Path) -> None:
    status, printed, errors = train(str(FIXTURES / name / "after.py"), notes(name).get("args", []), tmp_path)
    assert status == 0, errors
    losses = [float(value) for value in LOSS.findall(printed)]
    assert len(losses) >= 2, printed
    assert losses[-1] < 0.9 * losses[0], printed
