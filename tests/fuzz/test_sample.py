"""A sample of `make fuzz`, and faults that its judge has to see."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from amp_migrate.sources.notebooks import Notebook
from tests.fuzz import verdict
from tests.fuzz.__main__ import main
from tests.fuzz.case import Case, case
from tests.fuzz.cells import notebook
from tests.fuzz.orders import orders
from tests.fuzz.spellings import SPELLINGS, spelled, tree
from tests.fuzz.verdict import Judge, Result, result_of
from tests.metamorphic.program import ENTRY, Fixture

QUICK = ["amp_on_args", "imagenet", "plain_script", "static_scale", "trainer_class"]
CASES = range(1000, 1020)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    made = Judge()
    yield made
    made.close()


@pytest.mark.parametrize("number", CASES)
def test_a_program_that_nobody_wrote_is_right_or_refused(number: int, judge: Judge) -> None:
    found = judge.judge(case(number, QUICK), run=number % 4 == 0)
    assert found.kind != "wrong", found


@pytest.mark.parametrize("number", [1, 4])
def test_files_may_be_given_in_any_order(number: int) -> None:
    assert orders(number) == ""


@pytest.mark.parametrize("name", SPELLINGS)
def test_another_spelling_is_the_same_program(name: str) -> None:
    text = Fixture("imagenet").before
    new, done = spelled(text, random.Random(3), [name])
    assert done == [name]
    assert new != text
    assert tree(new) == tree(text)


def test_a_number_says_which_program_it_is() -> None:
    assert case(17) == case(17)
    assert len({case(number).spelled for number in range(12)}) == 12


def test_a_notebook_holds_the_statements_of_the_program() -> None:
    source = notebook(Fixture("plain_script").before, random.Random(1))
    assert "amp.scale_loss" in source
    assert not result_of("train.ipynb", source.encode()).trouble


def _case(text: str, fixture: str = "plain_script") -> Case:
    return Case(0, fixture, text, ("none",), text.encode(), ())


def test_the_judge_sees_what_is_wrong(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    before, right = Fixture("plain_script").before, Fixture("plain_script").after
    faults = {
        "faster": (right.replace("lr=5e-3", "lr=6e-3"), "instead of"),
        "raises": (right.replace("scaler = ", "scalar = "), "raises NameError"),
        "silent": (before.replace("lr=5e-3", "lr=0.005"), "still names Apex"),
        "no program": (right + "\n)", "no program"),
    }
    for name, (text, said) in faults.items():
        monkeypatch.setattr(verdict, "rewrite", lambda path, text=text: _write(path, text))
        found = judge.judge(_case(before))
        assert found.kind == "wrong", name
        assert said in found.why, (name, found)


def _write(path: Path, text: str) -> tuple[int, list[dict[str, object]], str]:
    path.write_text(text, encoding="utf-8")
    return 0, [{"code": "AMP201", "status": "done", "review": "as-is", "line": 1, "message": ""}], ""


def test_spellings_that_come_out_differently_are_told() -> None:
    plain = Result(b"x = 1\n", 0, [])
    found = Case(0, "", "", (), b"y = 1\r\n", ("crlf",))
    assert verdict.differs(found, plain, Result(b"x = (1)\r\n", 0, [])) == ""
    assert verdict.differs(found, plain, Result(b"x = 2\r\n", 0, [])) == "another program comes out"
    assert verdict.differs(found, plain, Result(b"x = 1\n", 0, [])) == "other line ends"
    more = [{"code": "AMP102", "status": "manual"}]
    assert "AMP102" in verdict.differs(found, plain, Result(b"x = 1\r\n", 1, more))


def test_it_goes_on_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["fuzz", "--state", str(tmp_path), "--count", "1", "--unrun", "--fixture", "plain_script"]
    monkeypatch.setattr("sys.argv", [*arguments, "--from", "1"])
    assert main() == 0
    monkeypatch.setattr("sys.argv", arguments)
    assert main() == 0
    assert "In all 3 in" in capsys.readouterr().out


def test_mutations_leave_programs_and_other_ones() -> None:
    for number in range(2000, 2020):
        found = case(number)
        compile(ast.parse(found.text), ENTRY, "exec")
        if len(found.steps) < 2:  # a second one may undo the first
            assert (tree(found.text) != tree(Fixture(found.fixture).before)) is bool(found.steps), found.steps


def test_rounding_is_no_fault_and_a_fault_is_no_rounding(judge: Judge) -> None:
    before = Fixture("plain_script").before
    known = judge.fixture("plain_script")
    old = known.run(ENTRY, before.encode())
    moved = [known.run(ENTRY, data) for data in verdict.rounded(ENTRY, before.encode())]
    assert len({tuple(run.numbers("gradients")) for run in (old, *moved)}) == 1 + verdict.RERUNS
    assert verdict.within(moved[0], old, moved[1:])
    assert not verdict.within(moved[0], old, [])
    for fault in ("lr=5.1e-3", "lr=6e-3"):
        assert not verdict.within(known.run(ENTRY, before.replace("lr=5e-3", fault).encode()), old, moved)


def test_a_notebook_is_moved_by_rounding_once() -> None:
    book = notebook(Fixture("plain_script").before, random.Random(1)).encode()
    moved = [Notebook.parse(data.decode()).program for data in verdict.rounded("train.ipynb", book)]
    assert [program.count("_noise") for program in moved] == [program.count("_noise") for program in moved[:1]] * 3
    assert all("exec(" in program for program in moved)


def test_a_level_whose_loss_was_not_scaled_is_announced_where_it_was_asked_for(judge: Judge) -> None:
    before = Fixture("checkpoint_guarded").before
    asked = before.replace("'opt_level': 'O1'", "'opt_level': os.environ.get('LEVEL', 'O3')")
    found = judge.judge(_case(asked, "checkpoint_guarded"))
    assert (found.kind, found.ran) == ("announced", True)
    written = before.replace("'opt_level': 'O1'", "'opt_level': 'O3'")
    assert judge.judge(_case(written, "checkpoint_guarded")).kind == "right"  # its scale is that of O3
    assert judge.judge(_case(before, "checkpoint_guarded")).kind == "right"
