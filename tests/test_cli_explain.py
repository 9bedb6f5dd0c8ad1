from __future__ import annotations

import pytest

from amp_migrate.registry import all_codes
from tests.cli_testing import run


def test_lists_all_codes_by_band() -> None:
    result = run("explain")
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ")]
    assert listed == list(all_codes())
    assert "Leftovers" in result.stdout or "leftovers" in result.stdout


@pytest.mark.parametrize("asked", ["AMP851", "amp851", "851"])
def test_one_code(asked: str) -> None:
    result = run("explain", asked)
    assert result.exit_code == 0
    assert result.stdout.startswith("AMP851 A requirement on Apex\n")
    for label in ("Apex", "Native", "Why", "https://"):
        assert label in result.stdout


def test_every_code_explains_itself() -> None:
    for name, code in all_codes().items():
        result = run("explain", name)
        assert result.exit_code == 0
        assert code.title in result.stdout


def test_prefix() -> None:
    result = run("explain", "85")
    assert result.stdout.count("Native\n") == sum(name.startswith("AMP85") for name in all_codes())


def test_unknown_code() -> None:
    result = run("explain", "AMP859")
    assert result.exit_code == 2
    assert "Did you mean" in result.stderr


def test_what_goes_is_said_to_go() -> None:
    """An empty block looks like a defect of the page."""
    assert "(nothing: it goes)" in run("explain", "AMP107").output
