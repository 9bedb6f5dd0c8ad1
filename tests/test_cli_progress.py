"""On a terminal a run says what it is about to do, before it does it; nowhere else is anything of that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        "files that can have to do with Apex",
        "migrating 1 files, training 1 of 12",
        "migrating 1 files, training 11 of 12",
        "checking the migration of 1 files",
    ]
    places = [told.index(step) for step in steps]
    assert places == sorted(places)
    assert told.endswith("\r\x1b[K")


def test_a_pipe_is_told_nothing(tmp_path: Path) -> None:
    with open(tmp_path / "err", "wb+") as file:
        run(tmp_path, file.fileno())
        file.seek(0)
        assert file.read() == b""
