"""What commands import, and what help and version say; in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_testing import run, write_tree

HEAVY = ("libcst", "torch", "rich", "numpy", "amp_migrate.engine")


def imported_by(*arguments: str, cwd: Path) -> list[str]:
    program = (
        "import sys\n"
        "from amp_migrate.cli import main\n"
        f"try: main({list(arguments)!r})\n"
        "except SystemExit as exit: code = exit.code\n"
        f"print('imported:', code, *[m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()[1:]


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("--help",), ("explain", "AMP851"), ("rewrite", "--help"), ("check", "."), ("rewrite", ".")],
)
def test_nothing_heavy_without_apex(arguments: tuple[str, ...], tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "import torch\n", ".gitignore": "x\n", "README.md": "An apex predator.\n"})
    assert imported_by(*arguments, cwd=tmp_path) == ["0"]


def test_module_and_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "amp_migrate", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("amp-migrate, version ")


@pytest.mark.parametrize("command", ["rewrite", "check", "explain"])
def test_help_has_examples_and_is_listed(command: str) -> None:
    assert f"\n  {command} " in run("--help").stdout
    text = run(command, "--help").stdout
    assert "Examples:" in text
    assert f"amp-migrate {command}" in text
    assert text.startswith("Usage: amp-migrate ")


def test_unknown_command() -> None:
    assert run("frobnicate").exit_code == 2


def test_an_interruption_is_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("amp_migrate.cli.session.load", interrupt)
    assert run("check", str(tmp_path)).exit_code == 130
