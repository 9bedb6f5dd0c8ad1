"""What the mutator plants, and that it tells what is seen from what is not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutation.argued import ARGUED
from tests.mutation.mutants import mutants, sample
from tests.mutation.running import ROOT, outcome
from tests.mutation.targets import TARGETS

SOURCE = '''"""A module."""


def smallest(values: list[int], but: int = 3) -> int:
    """What is returned."""
    found = [v for v in values if v != but and not v < 0]
    if not found:
        raise ValueError("none of " + str(values))
    return min(found)
'''
WANTED = {
    "3 -> 4",
    "v != but and not v < 0 -> True",
    "!= -> ==",
    "and -> or",
    "not v < 0 -> bool(v < 0)",
    "< -> <=",
    "0 -> 1",
    "not found -> True",
    "not found -> False",
    "not found -> bool(found)",
    "min(found) -> None",
    "min -> max",
}


def test_each_place_is_written_otherwise() -> None:
    assert {f"{SOURCE[m.start : m.end]} -> {m.new}" for m in mutants(SOURCE)} == WANTED


def test_every_mutant_is_another_program() -> None:
    text = (ROOT / "amp_migrate/audit/checks/ranks.py").read_text("utf-8")
    plain = ast.dump(ast.parse(text))
    found = mutants(text)
    assert len(found) > 50
    assert all(ast.dump(ast.parse(m.of(text))) != plain for m in found)


def test_a_sample_is_the_same_every_time() -> None:
    assert sample(SOURCE, 4, 1) == sample(SOURCE, 4, 1) != sample(SOURCE, 4, 2)


@pytest.mark.parametrize(("body", "wanted"), [("pass", "passed"), ("raise ValueError", "failed")])
def test_an_outcome_is_that_of_the_tests(body: str, wanted: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    assert outcome(tmp_path, ("test_it.py",), 60) == wanted


def test_what_is_mutated_and_what_is_to_see_it_are_there() -> None:
    for name, tests in TARGETS.items():
        assert all((ROOT / path).exists() for path in (name, *tests)), name


def test_what_is_argued_is_a_mutant() -> None:
    for name, told in ARGUED:
        text = (ROOT / name).read_text("utf-8")
        assert told in {m.told(text) for m in mutants(text)}, (name, told)
