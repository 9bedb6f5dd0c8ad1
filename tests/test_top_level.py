"""The top level of the repository: what is packaged, tested and documented, and what tools look for there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"amp_migrate", "docs", "fixtures", "tests", ".ci"}
FILES = {
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "Makefile",
    "constraints.txt",
    ".gitignore",
    ".pre-commit-hooks.yaml",
}


@pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="asks git which files are of the repository"
)
def test_nothing_else_is_kept_there() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    assert {path.partition("/")[0] for path in listed if path} <= FOLDERS | FILES
