"""A long file is written piece by piece: libcst takes 20 kB for a line that it reads, and a few hundred are there at a time.

A piece ends between two definitions that stay, with nothing but empty lines and comments at the margin between them: each
line belongs to the same statement as in the whole.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

from amp_migrate.writing.stretches import Short, first_row, last_row

ROWS = 400  # of a piece, at least
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Piece(NamedTuple):
    text: str
    body: list[ast.stmt]


def in_pieces(short: Short, staying: Collection[ast.AST]) -> Iterator[Piece]:
    """The pieces of a module; the first holds its first block, which tells how it is indented. `staying`: statements with
    an edit in them and none that takes them away."""
    rows, body = short.text.split("\n"), short.body
    index = row = 0
    first = short.block if short.block is not None and len(rows) > ROWS else len(body)
    for at, (one, other) in enumerate(pairwise(body[first:]), first + 1):
        if not isinstance(one, DEFINITIONS) or not isinstance(other, DEFINITIONS):
            continue
        if one not in staying or other not in staying:
            continue
        end, start = short.row(last_row(one)), short.row(first_row(other))
        if end - row >= ROWS and all(not r or r.startswith("#") for r in rows[end:start]):
            yield Piece("\n".join([*rows[row:end], ""]), body[index:at])
            index, row = at, end
    yield Piece("\n".join(rows[row:]), body[index:])
