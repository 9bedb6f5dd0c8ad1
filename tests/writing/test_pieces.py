"""A file that libcst reads piece by piece comes out the same as one that it reads whole."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import libcst as cst
import pytest

from amp_migrate.reading.program.module import Module
from amp_migrate.writing import pieces
from amp_migrate.writing.apply import apply
from amp_migrate.writing.edits import Edits

FUNCTION = """\

# above {0}

    # deeper than it

@decorated( {0} )
def function_{0}(x):
  first = {0}; second = x
  if x : # a test
      third = [
          x]
      # below third

  last = first
  # after the last line of {0}
"""
CLASS = """
# about it
class C_{0}:
    def method(self):
        return {0}
# of what comes next
async def after_{0}(x): return x ; y = 1

\t\t
def last_{0}(x):
  y = x
  return x
"""
PROGRAM = (
    '"""A module."""\n# before the imports\nimport os; import sys\nif os:\n\tpass # a tab tells the indentation\n'
    + "".join(FUNCTION.format(i) + CLASS.format(i) for i in range(4))
    + "def last():\n\treturn 1   # no line end"
)


def written(edit: Callable[[Edits], None], rows: int, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """The program with edits, and how many texts of half of it or more libcst has read."""
    read: list[str] = []
    parse = cst.parse_module

    def parsed(text: str, **config: cst.PartialParserConfig) -> cst.Module:
        read.append(text)
        return parse(text, **config)

    with monkeypatch.context() as patch:
        patch.setattr(cst, "parse_module", parsed)
        patch.setattr(pieces, "ROWS", rows)
        edits = Edits(Module(Path("m.py"), PROGRAM))
        edit(edits)
        return apply(edits), sum(len(text) > len(PROGRAM) / 2 for text in read)


def in_bodies(change: Callable[[Edits, ast.stmt], None]) -> Callable[[Edits], None]:
    def edit(edits: Edits) -> None:
        for stmt in edits.module.tree.body:
            inner = getattr(stmt, "body", [])
            if inner and not isinstance(stmt, ast.If):
                change(edits, inner[-1])
                if isinstance(inner[0], ast.Assign):
                    edits.replace(inner[0].value, "made(\n    1)")

    return edit


def delete(edits: Edits, stmt: ast.stmt) -> None:
    edits.delete(stmt)


def put_after(edits: Edits, stmt: ast.stmt) -> None:
    edits.insert_after(stmt, "if 1:\n    made = 1")


def wrap(edits: Edits, stmt: ast.stmt) -> None:
    edits.wrap(stmt, stmt, "region()")


def beside(edits: Edits, stmt: ast.stmt) -> None:
    """Around the definition, too."""
    holder = edits.module.parents[stmt]
    assert isinstance(holder, ast.stmt)
    edits.insert_before(holder, "scaler = 1")
    edits.insert_after(holder, "def made():\n    return 1")
    edits.comments[holder] = ["# TODO"]
    edits.replace(stmt, "other()")


@pytest.mark.parametrize("change", [delete, put_after, wrap, beside])
def test_pieces_come_out_as_the_whole(
    change: Callable[[Edits, ast.stmt], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pieces, long = written(in_bodies(change), 1, monkeypatch)
    whole, longer = written(in_bodies(change), 1 << 30, monkeypatch)
    assert in_pieces == whole != PROGRAM
    assert (long, longer) == (0, 1)


def test_what_goes_or_moves_ends_no_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments above what goes, and what comes after what moves, belong to other statements then."""

    def edit(edits: Edits) -> None:
        in_bodies(put_after)(edits)
        body = edits.module.tree.body
        definitions = [s for s in body if isinstance(s, (ast.FunctionDef, ast.ClassDef))]
        edits.delete(definitions[2])
        edits.move(definitions[4], body[-1])
        edits.wrap(body[-3], body[-2], "region()")

    assert written(edit, 1, monkeypatch)[0] == written(edit, 1 << 30, monkeypatch)[0]
