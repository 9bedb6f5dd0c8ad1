"""On a terminal a run says what it is about to do, before it does it; nowhere else is anything of that."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from amp_migrate.cli.progress import progress
from amp_migrate.cli.settings import Settings
from amp_migrate.options import Options
from tests.bench.long_programs import functions

COMMAND = [sys.executable, "-m", "amp_migrate", "rewrite", "--check", "train.py"]


def run(folder: Path, stderr: int) -> None:
    (folder / "train.py").write_text(functions(12)["train.py"])
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(COMMAND, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, check=False)
    assert done.returncode == 1
    assert b"\x1b" not in done.stdout


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no terminals of that kind")
def test_a_terminal_is_told_each_step(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    try:
        run(tmp_path, theirs)
        told = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    steps = [
        "looking for files",
        "reading 1 files",
        "looking for files that can have to do with Apex",
        "reading 1 files that can have to do with Apex",
        "following what 1 files call",
        "migrating 1 files, training 1 of 12",
        "migrating 1 files, training 11 of 12",
        "checking the migration of 1 files",
    ]
    places = [told.index(step) for step in steps]
    assert places == sorted(places)
    assert told.endswith("\r\x1b[K")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def settings(**asked: Any) -> Settings:
    return Settings((".",), Options(), **asked)


def test_the_seconds_of_a_long_step_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("amp_migrate.cli.progress._EVERY", 0.02)
    monkeypatch.setenv("COLUMNS", "60")
    with progress(settings(within="1 of 2 repositories: a: "), ticking=True) as tell:
        tell("following what 7 files call")
        waited = time.monotonic() + 10
        while terminal.getvalue().count("following") < 3 and time.monotonic() < waited:
            time.sleep(0.01)
        tell("x" * 100)
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines[1:3] == [
        "1 of 2 repositories: a: following what 7 files call…",
        "1 of 2 repositories: a: following what 7 files call, 0 s…",
    ]
    assert all(len(line) < 60 for line in lines)  # one that wraps would not be overwritten
    assert lines[-1] == ""
    assert "progress" not in [thread.name for thread in threading.enumerate()]


def test_nothing_is_told_to_those_who_want_it_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress(settings(quiet=True), ticking=True) as tell:
        tell("looking for files")
    assert terminal.getvalue() == ""


def test_a_pipe_is_told_nothing(tmp_path: Path) -> None:
    with open(tmp_path / "err", "wb+") as file:
        run(tmp_path, file.fileno())
        file.seek(0)
        assert file.read() == b""
