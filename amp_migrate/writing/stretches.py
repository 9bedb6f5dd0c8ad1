"""Stretches of a file in which nothing changes, left out while the rest of it is written.

libcst needs ten times as long as Python to parse a statement, and a kilobyte for each token: what no edit touches it need
not see. A name stands for each stretch and becomes its lines again at the end.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

FEWEST = 4  # lines that are worth leaving out
LONG = 100  # lines of a statement that is left out whatever stands beside it
NAME = "_left_as_it_is_"


@dataclass(frozen=True)
class Short:
    """A module without some of its lines. `body` has one statement of each stretch, in the place of its name."""

    text: str
    body: list[ast.stmt]
    kept: dict[str, str]  # the line with a name -> the lines that it stands for
    block: int | None = None  # the first statement with an indented block, where what follows may be read by itself
    fewer: Sequence[tuple[int, int]] = ()  # a row of the module below a stretch -> how many fewer there are up to it

    def row(self, row: int) -> int:
        """Where a row of the module has come to stand."""
        at = bisect_right(self.fewer, row, key=lambda known: known[0])
        return row - self.fewer[at - 1][1] if at else row

    def whole(self, text: str) -> str | None:
        """A text in which every name has become its lines again; None where one was not left as it was."""
        if not self.kept:
            return text
        whole = "".join(self.kept.get(line, line) for line in text.splitlines(keepends=True))
        return whole if NAME not in whole else None


def shortened(
    text: str, body: list[ast.stmt], touched: Collection[ast.AST], moving: Collection[ast.AST] = frozenset()
) -> Short:
    """A module without the stretches that have no part in how the rest is written. `moving`: statements that may come to
    stand elsewhere, or deeper.

    What stays: everything up to the first block, which tells how the file is indented; beside a statement with an edit
    one on either side, whose comments and empty lines may have to do with it; the last statement. A statement without a
    block that is very long goes wherever it stands. Of what stays, the blocks in which nothing changes go.
    """
    if "\r" in text or "\f" in text or NAME in text:
        return Short(text, body, {})
    rows = text.split("\n")
    cuts: list[tuple[int, int]] = []
    stmts: list[ast.stmt] = []
    index = 0
    opening = _first_block(body, rows)
    for first, last in _stretches(body, touched, opening):
        start, end = first_row(body[first]), last_row(body[last])
        if last_row(body[first - 1]) > start or first_row(body[last + 1]) < end or not _apart(rows, start, end):
            continue
        cuts.append((start, end))
        cuts += _blocks_cut(body[index:first], touched, moving, rows)
        stmts += body[index : first + 1]
        index = last + 1
    cuts += _blocks_cut(body[index:], touched, moving, rows)
    block = opening if opening >= 0 else None
    if not cuts:
        return Short(text, body, {}, block=block)
    short: list[str] = []
    kept: dict[str, str] = {}
    fewer: list[tuple[int, int]] = []
    row = 0
    for start, end in sorted(cuts):
        name = f"{_indent(rows[start])}{NAME}{len(kept)}"
        kept[f"{name}\n"] = "\n".join([*rows[start:end], ""])
        short += [*rows[row:start], name]
        row = end
        fewer.append((row, row - len(short)))
    return Short("\n".join([*short, *rows[row:]]), [*stmts, *body[index:]], kept, block, fewer)


def _apart(rows: Sequence[str], start: int, end: int) -> bool:
    """Whether some rows are worth leaving out, and no line goes on into them or out of them: a semicolon may stand on a
    line of its own."""
    return (
        end - start >= FEWEST
        and end < len(rows)
        and not any(r.endswith("\\") for r in (rows[start - 1], rows[end - 1]))
    )


def _blocks_cut(
    stmts: Sequence[ast.stmt], touched: Collection[ast.AST], moving: Collection[ast.AST], rows: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """The rows of blocks in which nothing changes, and which stay as deep as they are."""
    for block in _unchanged(stmts, touched, moving):
        start, end = first_row(block[0]), last_row(block[-1])
        indent = _indent(rows[start])
        if (
            len(indent) == block[0].col_offset
            and not rows[start].startswith(f"{indent}elif")
            and _apart(rows, start, end)
        ):
            yield start, end


def _unchanged(
    stmts: Sequence[ast.stmt], touched: Collection[ast.AST], moving: Collection[ast.AST]
) -> Iterator[list[ast.stmt]]:
    for stmt in stmts:
        if stmt in moving:
            continue
        for holder in (stmt, *getattr(stmt, "handlers", ()), *getattr(stmt, "cases", ())):
            for name in ("body", "orelse", "finalbody"):
                block: list[ast.stmt] = getattr(holder, name, [])
                if block and stmt in touched:
                    yield from _unchanged(block, touched, moving)
                elif block:
                    yield block


def _indent(row: str) -> str:
    return row[: len(row) - len(row.lstrip(" \t"))]


def _stretches(body: Sequence[ast.stmt], touched: Collection[ast.AST], after: int) -> Iterator[tuple[int, int]]:
    """The first and last of each run of statements without an edit in them or beside them."""
    free = [stmt not in touched for stmt in body]
    first = None
    for i in range(1, len(body)):
        apart = i > max(after, 0) and i + 1 < len(body) and free[i - 1] and free[i] and free[i + 1]
        apart = apart or (i + 1 < len(body) and free[i] and _long(body[i]))
        if apart and first is None:
            first = i
        elif not apart and first is not None:
            yield first, i - 1
            first = None


def _long(stmt: ast.stmt) -> bool:
    """Whether a statement without a block is so long that it matters how much time libcst takes for it."""
    return not hasattr(stmt, "body") and not hasattr(stmt, "cases") and last_row(stmt) - stmt.lineno >= LONG


def _first_block(body: Sequence[ast.stmt], rows: Sequence[str]) -> int:
    """The first statement with an indented block, or -1."""
    for i, stmt in enumerate(body):
        inner = getattr(stmt, "body", None)
        if isinstance(inner, list) and inner and not rows[inner[0].lineno - 1][: inner[0].col_offset].strip():
            return i
    return -1


def first_row(stmt: ast.stmt) -> int:
    """The row that a statement begins in."""
    decorators: list[ast.expr] = getattr(stmt, "decorator_list", [])
    return min([stmt.lineno, *(d.lineno for d in decorators)]) - 1


def last_row(stmt: ast.stmt) -> int:
    """The row after those of a statement."""
    return stmt.end_lineno or stmt.lineno
