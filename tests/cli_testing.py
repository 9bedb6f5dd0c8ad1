"""Running the command line in tests: as a person would, and with an engine whose decisions the test chooses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from amp_migrate.cli import main
from amp_migrate.engine import Program
from amp_migrate.findings import FileResult, FileStatus, Finding
from amp_migrate.options import Options

# A word a line: the fake engine migrates OLD, gives up on HARD, remarks on NOTE. It takes no other notice of code.
SITE = "OLD = 'apex'\n"
HARD = "HARD = 'apex'\n"
NOTE = "NOTE = 'apex'\n"


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """The command line with these arguments; its exit code, stdout and stderr."""
    result = _runner().invoke(main, list(arguments), input=stdin, prog_name="amp-migrate")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def _runner() -> CliRunner:
    """One that keeps standard output and standard error apart, as click 8.2 does; 8.1 is asked to."""
    return CliRunner(mix_stderr=False) if "mix_stderr" in signature(CliRunner).parameters else CliRunner()


def git(*arguments: str, folder: Path = Path()) -> str:
    """What git prints, run by somebody."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def run_json(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = run(*arguments, "--format", "json")
    return result.exit_code, json.loads(result.stdout)


def fake_engine(program: Program, options: Options, tell: object = None) -> list[FileResult]:
    results = []
    for source in program.targets:
        findings = []
        for number, line in enumerate(source.text.split("\n"), 1):
            if "OLD" in line and "ignore" not in line and options.wants("AMP201"):
                findings.append(Finding(number, 1, "AMP201", "amp.scale_loss", "done", "as-is", "scaled backward"))
            if "HARD" in line:
                findings.append(
                    Finding(number, 1, "AMP110", "amp.initialize", "manual", "review", "cannot: 100%, sorry")
                )
            if "NOTE" in line:
                findings.append(Finding(number, 1, "AMP112", "amp.initialize", "note", "look", "O2 differs"))
        done = any(f.status == "done" for f in findings)
        manual = any(f.status == "manual" for f in findings)
        after = source.text.replace("OLD", "NEW") if done else None
        status: FileStatus = ("partial" if done else "blocked") if manual else ("migrated" if done else "unchanged")
        units = frozenset({1}) if "UNIT" in source.text else frozenset()
        results.append(FileResult(source.display, status, findings, source.text, after, units))
    return results


@contextmanager
def engine(patch: pytest.MonkeyPatch, replacement: Any = fake_engine) -> Iterator[None]:
    with patch.context() as context:
        context.setattr("amp_migrate.engine.migrate", replacement)
        yield


def write_tree(folder: Path, files: dict[str, str | bytes]) -> None:
    """Files by their path below the folder; text keeps its line endings."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
