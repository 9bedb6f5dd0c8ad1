"""Lines that nothing edits keep their bytes even where a concrete syntax tree cannot hold them."""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import re
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

import libcst as cst
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amp_migrate.reading.program.module import Module
from amp_migrate.writing.apply import apply
from amp_migrate.writing.edits import Edits
from amp_migrate.writing.verbatim import may_drift, restore

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


GRAMMAR = """\
import a.b as c, d
from . import (x, y as z)
from ..m import *
@dec(1).x
async def f(a, /, b: int=1, *args, c=2, **kw) -> int:
    global g, h
    async with a as b, c: pass
    async for i in x: await y
    return [i async for i in z if a if b for j in k]
def f(*, a): yield; yield from c
class A(B, *d, metaclass=C): x: int = 1
class E(): pass
try: raise A from b
except A: pass
except (B, C) as e: pass
except: raise
else: pass
finally: assert a, b
if a: del a, b[0], c.d
elif b: pass
else: pass
while not a: break
else: continue
for a, *b in c, d: x += -1
with a(), b as c, (d): pass
with (a as b, c as d,): pass
x = y = z[::3, 1:2, ...]
x = a and b or c if d else lambda a, *b, c=1, **d: a
x = {**a, 'b': c}, {1, *b}, {a: b for a, b in c}, (a for a in b), (), (a,), []
x = f(a, *b, c=d, **e)(g)[h].i < b is not e not in f
x = "a" "b" f"c{d!r:>{w}}" @ b ** ~c
(x := 5)
match a:
    case 1 | -2 | {'a': b, **rest}: pass
    case A(b, c=d) | [a, *_, b] if d: pass
y = 2; x = 1  # c
"""


def spaced(source: str, gap: str) -> Iterator[str]:
    """A program with other space between two tokens of one line, wherever Python reads it all the same."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    for one, other in itertools.pairwise(tokens):
        if one.end[0] == other.start[0] and one.string.strip():
            first, last = (starts[line - 1] + column for line, column in (one.end, other.start))
            text = source[:first] + gap + source[last:]
            with contextlib.suppress(SyntaxError):
                ast.parse(text)
                yield text


@pytest.mark.parametrize("gap", [" ", "  ", "\t", " \\\n ", ""])
def test_where_libcst_drops_a_space_it_is_asked_what_it_writes(gap: str) -> None:
    held = {text: cst.parse_module(text).code == text for text in spaced(GRAMMAR, gap)}
    assert len(held) > 100
    assert all(kept or may_drift(text) for text, kept in held.items())
    assert not may_drift(GRAMMAR)


def test_a_dropped_space_far_from_an_edit_comes_back() -> None:
    text = "try:\n    import apex\nexcept ImportError :\n    apex = None\nx = 1\n"
    edits = Edits(Module(Path("train.py"), text))
    edits.insert_after(edits.module.tree.body[0], "y = 2")
    assert may_drift(text)
    assert apply(edits) == text.replace("x = 1", "y = 2\nx = 1")
