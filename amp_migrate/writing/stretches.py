"""Stretches of a file in which nothing changes, left out while the rest of it is written.

libcst needs ten times as long as Python to parse a statement, and a kilobyte for each token: what no edit touches it need
not see. A name stands for each stretch and becomes its lines again at the end.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

FEWEST = 2  # lines that are worth leaving out
LONG = 100  # lines of a statement that is left out whatever stands beside it
NAME = "_left_as_it_is_"


@dataclass(frozen=True)
class Short:
    """A module without some of its lines. `body` has the first statement of each stretch, in the place of its name."""

    text: str
    body: list[ast.stmt]
    left: Collection[ast.AST]  # the other statements of the stretches
    kept: Mapping[str, str] = field(default_factory=dict)  # the line with a name -> the lines that it stands for
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

    What stays: the first block, which tells how the file is indented; beside a statement with an edit one on either side,
    whose comments and empty lines may have to do with it; the first and the last statement of a block.
    A statement without a block that is very long goes wherever it stands. Of what stays, the blocks in which nothing
    changes go.
    """
    if "\r" in text or "\f" in text or NAME in text:
        return Short(text, body, frozenset())
    rows = text.split("\n")
    cutter = _Cutter(rows, touched, moving)
    opening = _first_block(body, rows)
    cutter.block(body, opening)
    short: list[str] = []
    names: dict[str, str] = {}
    fewer: list[tuple[int, int]] = []
    row = 0
    for start, end in sorted(cutter.cuts):
        lines = "\n".join([*rows[start:end], ""])
        name = names.setdefault(lines, f"{_indent(rows[start])}{NAME}{len(names)}")  # what is equal stays so
        short += [*rows[row:start], name]
        row = end
        fewer.append((row, row - len(short)))
    kept = {f"{name}\n": lines for lines, name in names.items()}
    here = [s for s in body if s not in cutter.left]
    block = here.index(body[opening]) if opening >= 0 else None
    return Short("\n".join([*short, *rows[row:]]), here, cutter.left, kept, block, fewer)


class _Cutter:
    """Finds the rows to leave out."""

    def __init__(self, rows: Sequence[str], touched: Collection[ast.AST], moving: Collection[ast.AST]) -> None:
        self.rows = rows
        self.touched = touched
        self.moving = moving
        self.cuts: list[tuple[int, int]] = []
        self.left: set[ast.stmt] = set()  # statements that have no line of their own any more

    def block(self, stmts: Sequence[ast.stmt], but: int = 0) -> None:
        """Leaves out runs of statements of a block that stays, and what is inside of others."""
        index = 0
        for first, last in _stretches(stmts, self.touched, but):
            start, end = first_row(stmts[first]), last_row(stmts[last])
            beside = last_row(stmts[first - 1]) > start or first_row(stmts[last + 1]) < end  # on one line with it
            if not beside and self._cut(stmts[first], start, end):
                self.left.update(stmts[first + 1 : last + 1])
                self._inside(stmts[index:first])
                index = last + 1
        self._inside(stmts[index:])

    def _inside(self, stmts: Sequence[ast.stmt]) -> None:
        for stmt in stmts:
            if stmt in self.moving:
                continue
            for holder in (stmt, *getattr(stmt, "handlers", ()), *getattr(stmt, "cases", ())):
                for name in ("body", "orelse", "finalbody"):
                    inner: list[ast.stmt] = getattr(holder, name, [])
                    if inner and stmt in self.touched:
                        self.block(inner)
                    elif inner:
                        self._cut(inner[0], first_row(inner[0]), last_row(inner[-1]))

    def _cut(self, stmt: ast.stmt, start: int, end: int) -> bool:
        """Leaves rows out that begin with a statement, where they are worth it and no line goes on into them or out of
        them: a semicolon may stand on a line of its own."""
        indent = _indent(self.rows[start])
        if len(indent) != stmt.col_offset or self.rows[start].startswith(f"{indent}elif"):
            return False
        if end - start < FEWEST or end >= len(self.rows):
            return False
        if self.rows[start - 1].endswith("\\") or self.rows[end - 1].endswith("\\"):
            return False
        self.cuts.append((start, end))
        return True


def _indent(row: str) -> str:
    return row[: len(row) - len(row.lstrip(" \t"))]


def _stretches(body: Sequence[ast.stmt], touched: Collection[ast.AST], but: int) -> Iterator[tuple[int, int]]:
    """The first and last of each run of statements without an edit in them or beside them. `but`: one that stays."""
    free = [stmt not in touched for stmt in body]
    first = None
    for i in range(1, len(body)):
        apart = i != but and i + 1 < len(body) and free[i - 1] and free[i] and free[i + 1]
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
        for inner in ast.walk(stmt) if hasattr(stmt, "body") or hasattr(stmt, "cases") else ():
            if (
                isinstance(inner, ast.stmt)
                and inner.col_offset
                and not rows[inner.lineno - 1][: inner.col_offset].strip()
            ):
                return i
    return -1


def first_row(stmt: ast.stmt) -> int:
    """The row that a statement begins in."""
    decorators: list[ast.expr] = getattr(stmt, "decorator_list", [])
    return min([stmt.lineno, *(d.lineno for d in decorators)]) - 1


def last_row(stmt: ast.stmt) -> int:
    """The row after those of a statement."""
    return stmt.end_lineno or stmt.lineno
