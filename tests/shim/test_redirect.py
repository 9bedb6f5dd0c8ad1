"""CUDA programs on the CPU.

A process cannot be undirected, so the `redirected/check_*.py` are a pytest run of their own.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launching import HERE, run_redirected

CHECKS = sorted((HERE / "redirected").glob("check_*.py"))


@pytest.fixture(scope="module")
def said() -> str:
    result = run_redirected("-m", "pytest", *CHECKS, "-o", "addopts=", "-v", "-p", "no:cacheprovider", "-n0", cwd=HERE)
    return result.stdout + result.stderr


def test_there_are_checks() -> None:
    assert len(CHECKS) >= 6


@pytest.mark.parametrize("check", CHECKS, ids=lambda path: path.stem)
def test_under_the_redirection(said: str, check: Path) -> None:
    outcomes = set(re.findall(rf"{check.name}::.* ([A-Z]+) +\[", said))
    assert outcomes == {"PASSED"}, said


def test_nothing_was_left_out_on_the_way(said: str) -> None:
    summary = said.splitlines()[-1]
    assert re.match(r"=+ \d+ passed(, \d+ warnings?)? in", summary), summary
