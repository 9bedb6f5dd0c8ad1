"""What no edit touches is not parsed by libcst: the file comes out the same as if it had been."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import libcst as cst
import pytest

from amp_migrate.reading.program.module import Module
from amp_migrate.writing import stretches
from amp_migrate.writing.apply import apply
from amp_migrate.writing.edits import Edits

HELPER = '''

# above {0}
@decorated(
    {0})
def helper_{0}( x,y = {0} ):
  """Two spaces,

not indented in a string."""
  if x : return [
      y]
  # after the last line of {0}
'''
PROGRAM = (
    '"""A module."""\n# before the imports\nimport os; import sys\n\nfirst = 1\n'
    "if first:\n\tpass # a tab tells the indentation\n"
    + "".join(HELPER.format(i) for i in range(6))
    + "\n\nx = 1 ;y=2\nz = \\\n  3\n# deep\n        # deeper\n"
    + "".join(HELPER.format(i) for i in range(6, 12))
    + "rows = [\n  1,\n  2,\n  3] \\\n  ; \\\ncells = [\n  1,\n  2,\n  3] ; \\\n  count = 7 \\\n\n"
    + "".join(HELPER.format(i) for i in range(12, 15))
    + "grid = [\n  1,\n 2]  # a grid\n"
    + "table = [\n1,\n   2,\n 3, # three\n4]; w = 5\n\nlast()   # no line end"
)


def statements() -> list[ast.stmt]:
    return Module(Path("m.py"), PROGRAM).tree.body


def delete(edits: Edits, stmt: ast.stmt) -> None:
    edits.delete(stmt)


def put_before(edits: Edits, stmt: ast.stmt) -> None:
    edits.insert_before(stmt, "def made():\n    return 1")


def put_after(edits: Edits, stmt: ast.stmt) -> None:
    edits.insert_after(stmt, "scaler = 1")


def comment(edits: Edits, stmt: ast.stmt) -> None:
    edits.comments[stmt] = ["# TODO"]


KINDS = [delete, put_before, put_after, comment]


def both(edit: Callable[[Edits, list[ast.stmt]], None], monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The text with an edit, written with stretches left out and without."""
    texts = []
    for fewest, long in ((1, 1 << 30), (1, 1), (1 << 30, 1 << 30)):
        monkeypatch.setattr(stretches, "FEWEST", fewest)
        monkeypatch.setattr(stretches, "LONG", long)
        module = Module(Path("m.py"), PROGRAM)
        edits = Edits(module)
        edit(edits, module.tree.body)
        texts.append(apply(edits))
    assert texts[0] == texts[1]
    return texts[0], texts[2]


@pytest.mark.parametrize("kind", KINDS)
def test_each_statement_of_a_file_is_edited_as_in_the_whole(
    kind: Callable[[Edits, ast.stmt], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(len(statements())):
        short, whole = both(lambda edits, body, i=i: kind(edits, body[i]), monkeypatch)  # type: ignore[misc]
        assert short == whole


def test_what_gets_a_header_is_parsed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrap(edits: Edits, body: list[ast.stmt]) -> None:
        edits.wrap(body[5], body[16], "torch.no_grad()")

    short, whole = both(wrap, monkeypatch)
    assert short == whole
    assert "with torch.no_grad():" in short


def test_only_what_is_near_an_edit_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    parse = cst.parse_module

    def parsed(text: str, *config: cst.PartialParserConfig) -> cst.Module:
        seen.append(text)
        return parse(text, *config)

    monkeypatch.setattr(cst, "parse_module", parsed)
    text = "import os\n" + "".join(HELPER.format(i) for i in range(50)) + "done()\nlast = 1\n"
    module = Module(Path("m.py"), text)
    edits = Edits(module)
    edits.delete(module.tree.body[-2])
    assert apply(edits) == text.replace("done()\n", "")
    assert len(seen[0]) < len(text) / 10


def test_a_line_that_libcst_cannot_read_is_counted_in_the_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(text: str, *config: cst.PartialParserConfig) -> cst.Module:
        raise cst.ParserSyntaxError("no", lines=text.split("\n"), raw_line=text.count("\n"), raw_column=0)

    monkeypatch.setattr(cst, "parse_module", unread)
    module = Module(Path("m.py"), PROGRAM)
    edits = Edits(module)
    edits.delete(module.tree.body[0])
    with pytest.raises(Exception, match=f"cannot read line {PROGRAM.count(chr(10))}"):
        apply(edits)


NESTED = """\
import torch


class Net(torch.nn.Module):
    @property
    def one(self):
        # first
        a = 1; b = 2
        if a:
            c = 3  # of a
            # after c
        elif b:
            c = [
                4]
            d = c
        else: d = 5
        return a
        # after all

    def two(self, x):
        '''Two.

    not indented.'''
        try:
            y = x
            z = y
        except (KeyError, ValueError) as error:
            y = error
            z = 1
        finally:
            w = 0
            v = 1
        with torch.no_grad():
            for i in range(3):
                y += i
                z += y
            while z:
                z -= 1
                y = z
        return y


    size = 4


def main():
  net = Net()
  for x in range(3):
      net.two(x)
      print(x)
      # next
  return net
"""


def test_each_statement_within_another_is_edited_as_in_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PROGRAM", NESTED)
    places = [n for n in ast.walk(ast.parse(NESTED)) if isinstance(n, ast.stmt)]
    wrap = [lambda edits, stmt: edits.wrap(stmt, stmt, "torch.no_grad()")]
    for number, place in enumerate(places):
        for kind in [*KINDS, *wrap]:

            def edit(edits: Edits, body: list[ast.stmt], number: int = number, kind: object = kind) -> None:
                tree = ast.Module(body=body, type_ignores=[])
                kind(edits, [n for n in ast.walk(tree) if isinstance(n, ast.stmt)][number])  # type: ignore[operator]

            short, whole = both(edit, monkeypatch)
            assert short == whole, ast.unparse(place)


def test_of_what_is_near_an_edit_its_changed_blocks_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    parse = cst.parse_module
    monkeypatch.setattr(cst, "parse_module", lambda text, *config: (seen.append(text), parse(text, *config))[1])
    module = Module(Path("m.py"), NESTED)
    edits = Edits(module)
    edits.delete(module.tree.body[-1].body[0])  # type: ignore[attr-defined]
    assert apply(edits) == NESTED.replace("  net = Net()\n", "")
    assert "not indented" not in seen[0]
    assert "class Net" in seen[0]


LATE = """\
import os
import sys
if os: first = 1
elif sys: first = 2
else:
  \tfirst = 3
second = 4

third = 5
def net(x):
    y = x
    z = y
    return z
fourth = 6
fifth = 7
last()
"""


def test_what_tells_the_indentation_stays_where_no_body_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """libcst takes the first one that it meets for the module's own."""
    monkeypatch.setitem(globals(), "PROGRAM", LATE)
    short, whole = both(lambda edits, body: edits.insert_after(body[-2], "if 1:\n    made = 1"), monkeypatch)
    assert short == whole


def test_what_is_equal_in_two_branches_is_equal_without_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    block = "".join(f"    step_{i}()  # a step\n" for i in range(9))
    text = f"import os\nif os:\n    start(1)\n{block}else:\n    start(2)\n{block}last()\n"
    monkeypatch.setitem(globals(), "PROGRAM", text)

    def edit(edits: Edits, body: list[ast.stmt]) -> None:
        for branch in (body[1].body, body[1].orelse):  # type: ignore[attr-defined]
            edits.replace(branch[0], "start(3)")

    short, whole = both(edit, monkeypatch)
    assert short == whole
    assert "else" not in short
