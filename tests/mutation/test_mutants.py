"""What the mutator plants, and that it tells what is seen from what is not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutation.argued import Argument, arguments, stale
from tests.mutation.mutants import mutants
from tests.mutation.results import Results, state
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


@pytest.mark.slow
def test_every_mutant_is_another_program() -> None:
    text = (ROOT / "amp_migrate/audit/checks/ranks.py").read_text("utf-8")
    plain = ast.dump(ast.parse(text))
    found = mutants(text)
    assert len(found) > 50
    assert all(ast.dump(ast.parse(m.of(text))) != plain for m in found)


def test_a_mutant_stays_the_same_one_whatever_is_written_elsewhere() -> None:
    was = {m.ident for m in mutants(SOURCE)}
    assert len(was) == len(WANTED)
    above = "LIMIT = 4 if 3 > 2 else 5\n\n\ndef other(n: int) -> int:\n    return n + 1\n\n\n"
    assert was < {m.ident for m in mutants(above + SOURCE)}
    wrapped = SOURCE.replace("[v for", "[\n        v for").replace("v < 0]", "v < 0  # none below\n    ]")
    assert was == {m.ident for m in mutants(wrapped)}
    edited = {m.ident for m in mutants(SOURCE.replace("if not found:", "if not found and but:"))}
    assert len(was & edited) == len(WANTED) - 3  # those of the condition are others


def test_alike_places_of_one_function_are_told_apart_by_their_order() -> None:
    assert len({m.ident for m in mutants("def f(a):\n    a += 1\n    a += 1\n    return a\n")}) == 5


def test_what_is_chosen_at_a_rate_is_chosen_at_a_higher_one() -> None:
    found = mutants((ROOT / "amp_migrate/audit/checks/ranks.py").read_text("utf-8"))
    few, many = ([m for m in found if m.chosen(rate)] for rate in (0.1, 0.3))
    assert 0 < len(few) < len(many) < len(found)
    assert set(few) < set(many)
    assert all(m.chosen(1) for m in found)
    assert not any(m.chosen(0) for m in found)


def test_results_are_kept_until_the_file_or_its_tests_change(tmp_path: Path) -> None:
    name, tests = "amp_migrate/audit/checks/ranks.py", ("tests/audit/test_ranks.py",)
    results = Results(tmp_path)
    results.of(name, tests)["0123456789"] = "passed"
    results.save()
    assert Results(tmp_path).of(name, tests) == {"0123456789": "passed"}
    assert Results(tmp_path, fresh=True).of(name, tests) == {}
    assert Results(tmp_path).of(name, ("tests/audit/test_state.py",)) == {}


def test_the_state_of_tests_has_what_they_import(tmp_path: Path) -> None:
    files = {"f.py": "", "tests/test_f.py": "from tests.helpers import one\n", "tests/helpers.py": "one = 1\n"}
    (tmp_path / "tests").mkdir()
    states = set()
    for changed in (None, *files):
        for path, text in files.items():
            (tmp_path / path).write_text(text + "x = 2\n" * (path == changed))
        states.add(state("f.py", ("tests/test_f.py",), tmp_path))
    assert len(states) == 4


@pytest.mark.parametrize(("body", "wanted"), [("pass", "passed"), ("raise ValueError", "failed")])
def test_an_outcome_is_that_of_the_tests(body: str, wanted: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    assert outcome(tmp_path, ("test_it.py",), 60) == wanted


def test_what_is_mutated_and_what_is_to_see_it_are_there() -> None:
    for name, tests in TARGETS.items():
        assert all((ROOT / path).exists() for path in (name, *tests)), name


def test_what_is_argued_is_a_mutant_with_a_reason() -> None:
    known = arguments()
    assert not stale(known)
    assert all(a.file in TARGETS and a.reason for a in known)
    assert len({(a.file, a.ident) for a in known}) == len(known)


def test_an_argument_for_a_mutant_that_is_gone_is_stale() -> None:
    gone = [Argument("amp_migrate/audit/checks/ranks.py", "0" * 10, "", ""), Argument("gone.py", "0" * 10, "", "")]
    assert stale(gone) == gone
