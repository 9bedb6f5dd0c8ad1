"""Lines that nothing edits keep their bytes even where a concrete syntax tree cannot hold them."""

from __future__ import annotations

import ast
import re
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amp_migrate.reading.program.module import Module
from amp_migrate.writing.apply import apply
from amp_migrate.writing.edits import Edits
from amp_migrate.writing.verbatim import restore

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c \n", "\n", "except E :\n", "d  :\n"]), max_size=12)
BUSY = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a machine that is, is no failure
STDLIB = Path(sysconfig.get_paths()["stdlib"])


def normalised(lines: list[str]) -> list[str]:
    return [re.sub(r" +(:?)\n", r"\1\n", line) for line in lines]


@BUSY
@given(LINES)
def test_without_edits_the_source_comes_back(lines: list[str]) -> None:
    plain = "".join(normalised(lines))
    assert restore("".join(lines), plain, plain) == "".join(lines)


@BUSY
@given(LINES, LINES, st.integers(0, 12))
def test_new_lines_stay_and_all_others_are_those_of_the_source(lines: list[str], new: list[str], at: int) -> None:
    new = [f"new{i}\n" for i, _ in enumerate(new)]
    drifted = normalised(lines)
    after = "".join([*drifted[:at], *new, *drifted[at:]])
    assert restore("".join(lines), "".join(drifted), after) == "".join([*lines[:at], *new, *lines[at:]])


def test_a_line_that_was_edited_stays_as_it_was_emitted() -> None:
    assert restore("a :\nb :\n", "a:\nb:\n", "new:\nb:\n") == "new:\nb :\n"


@pytest.mark.parametrize("name", ["webbrowser.py", "abc.py", "textwrap.py", "this.py"])
def test_one_edit_in_a_file_of_the_standard_library_changes_its_own_line_only(name: str) -> None:
    text = (STDLIB / name).read_text(encoding="utf-8")
    edits = Edits(Module(Path(name), text))
    stmt = next(s for s in reversed(edits.module.tree.body) if isinstance(s, ast.stmt))
    edits.insert_before(stmt, "added = 1")
    assert apply(edits).replace("added = 1\n", "", 1) == text
