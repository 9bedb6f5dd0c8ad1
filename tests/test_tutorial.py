"""The tutorial is done, command by command, as it is written: what it prints is what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_testing import git

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
SUMMARY = "/tmp/pr.md"
# What hangs on the day, the machine, its load and its torch: times, factors, memory, decimals, bars, the last line.
MEASURED = re.compile(r"\b[\d.]+ ms|\b\d+ MiB|\b\d+\.\d+(?:e[+-]\d+)?x?|[▁-█]+|judged on .*|\b[0-9a-f]{7}\b", re.DOTALL)


def transcripts() -> list[tuple[list[str], str]]:
    """The commands of each block, and what they are said to print."""
    blocks = [b for b in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if b.startswith("$ ")]
    split = [(re.findall(r"(?m)^\$ (.*)$", block), re.sub(r"(?m)^\$ .*\n", "", block)) for block in blocks]
    assert len(split) == 5
    return split


def words(text: str) -> str:
    """A text without what is measured, and without the width of the terminal."""
    return " ".join(MEASURED.sub("#", text).split())


def run(folder: Path, line: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder.parent / "cache"), "NO_COLOR": "1"}
    command = shlex.split(line.replace(SUMMARY, str(folder.parent / "pr.md")).replace(" -- ARGS", ""))
    if command[0] == "amp-migrate":
        command[:1] = [sys.executable, "-m", "amp_migrate"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The program of the page, committed."""
    folder = tmp_path / "project"
    folder.mkdir()
    program, requirements = (
        re.search(rf"```{kind}\n({start}.*?)```", PAGE, re.DOTALL)
        for kind, start in (("python", "import"), ("text", "torch"))
    )
    assert program is not None
    assert requirements is not None
    (folder / "train.py").write_text(program[1])
    (folder / "requirements.txt").write_text(requirements[1])
    git("init", "-q", folder=folder)
    git("add", ".", folder=folder)
    git("commit", "-qm", "Train", folder=folder)
    return folder


def check(folder: Path, commands: list[str], said: str) -> None:
    printed = words("".join(run(folder, command) for command in commands))
    place = 0
    for piece in map(words, said.split("...\n")):
        found = printed.find(piece, place)
        assert found >= 0, f"{commands}: not printed: {piece}\n\n{printed}"
        place = found + len(piece)


def test_looking_and_rewriting(project: Path) -> None:
    _, look, rewrite, *_ = transcripts()
    check(project, *look)
    check(project, *rewrite)
    shown = re.search(r"```diff\n(.*?)```", PAGE, re.DOTALL)
    diff = subprocess.run(["git", "diff", "-U1"], cwd=project, capture_output=True, text=True, check=True).stdout
    assert shown is not None
    assert [line for line in shown[1].splitlines() if line[:1] in "+-"] == [
        line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert "amp-migrate verify --original-rev" in (project.parent / "pr.md").read_text()


@pytest.mark.slow
def test_all_of_it(project: Path) -> None:
    for commands, said in transcripts():
        check(project, commands, said)
    assert (project / "last-native.pt").exists()
