"""CUDA programs on the CPU.

A process cannot be undirected, so each `redirected/check_*.py` is a pytest run of its own.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launching import HERE, run_redirected

CHECKS = sorted((HERE / "redirected").glob("check_*.py"))


def test_there_are_checks() -> None:
    assert len(CHECKS) >= 6


@pytest.mark.parametrize("check", CHECKS, ids=lambda path: path.stem)
def test_under_the_redirection(check: Path) -> None:
    result = run_redirected("-m", "pytest", check, "-o", "addopts=", "-q", "-p", "no:cacheprovider", "-n0", cwd=HERE)
    assert result.returncode == 0, result.stdout + result.stderr
    # Nothing was left out on the way.
    summary = result.stdout.splitlines()[-1]
    assert re.match(r"\d+ passed(, \d+ warnings?)? in", summary), summary
