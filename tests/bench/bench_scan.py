"""A tree of 4,000 files with nothing to do: check and rewrite against grep, ruff and ast-grep."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measuring import Row, Table, best, command
from trees import lay

FILES = 4_000
PROGRAM = [sys.executable, "-m", "amp_migrate"]


def measure() -> Table:
    table = Table(
        "scan",
        f"Scanning {FILES} files with nothing to do",
        "grep -rl apex",
        "within 5 times grep, faster than ruff (one rule, no cache)",
    )
    with tempfile.TemporaryDirectory() as folder:
        size = lay(Path(folder), FILES)
        beside = Path(sys.executable).with_name("ruff")
        ruff = str(beside) if beside.exists() else shutil.which("ruff")
        actions: dict[str, Callable[[], object]] = {
            "grep -rl apex": command(["grep", "-rl", "apex", "--include=*.py", "."], folder),
            "amp-migrate rewrite": command([*PROGRAM, "rewrite", "."], folder),
            "amp-migrate check": command([*PROGRAM, "check", "."], folder),
        }
        if ruff:
            actions["ruff, one rule, no cache"] = command(
                [ruff, "check", "--isolated", "--no-cache", "--select", "F401", "-q", "."], folder
            )
        if ast_grep := shutil.which("ast-grep"):
            actions["ast-grep"] = command([ast_grep, "run", "-p", "amp.initialize($$$)", "-l", "python", "."], folder)
        times = best(actions, rounds=5)
    table.rows = [Row(name, seconds, f"{size / 1e6 / seconds:.0f} MB/s") for name, seconds in times.items()]
    return table
