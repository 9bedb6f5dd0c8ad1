"""Stretches of a file in which nothing changes, left out while the rest of it is written.

libcst needs ten times as long as Python to parse a statement, and a kilobyte for each token: what no edit touches it need
not see. A name stands for each stretch and becomes its lines again at the end.
"""

from __future__ import annotations

import ast
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

    def whole(self, text: str) -> str:
        """A text in which every name has become its lines again."""
        if not self.kept:
            return text
        return "".join(self.kept.get(line, line) for line in text.splitlines(keepends=True))


def shortened(text: str, body: list[ast.stmt], touched: Collection[ast.AST]) -> Short:
    """A module without the stretches that have no part in how the rest is written.

    What stays: everything up to the first block, which tells how the file is indented; beside a statement with an edit
    one on either side, whose comments and empty lines may have to do with it; the last statement. A statement without a
    block that is very long goes wherever it stands.
    """
    if "\r" in text or "\f" in text or NAME in text:
        return Short(text, body, {})
    rows = text.split("\n")
    short: list[str] = []
    stmts: list[ast.stmt] = []
    kept: dict[str, str] = {}
    row = index = 0
    for first, last in _stretches(body, touched, _first_block(body, rows)):
        start, end = _start(body[first]) - 1, _end(body[last])
        if end - start < FEWEST or _end(body[first - 1]) > start or _start(body[last + 1]) <= end:
            continue
        if any(
            row.endswith("\\") for row in (rows[start - 1], rows[end - 1])
        ):  # a semicolon may stand on a line of its own
            continue
        name = f"{NAME}{len(kept)}"
        kept[f"{name}\n"] = "\n".join([*rows[start:end], ""])
        short += [*rows[row:start], name]
        stmts += body[index : first + 1]
        row, index = end, last + 1
    if not kept:
        return Short(text, body, kept)
    return Short("\n".join([*short, *rows[row:]]), [*stmts, *body[index:]], kept)


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
    return not hasattr(stmt, "body") and not hasattr(stmt, "cases") and _end(stmt) - stmt.lineno >= LONG


def _first_block(body: Sequence[ast.stmt], rows: Sequence[str]) -> int:
    """The first statement with an indented block, or -1."""
    for i, stmt in enumerate(body):
        inner = getattr(stmt, "body", None)
        if isinstance(inner, list) and inner and not rows[inner[0].lineno - 1][: inner[0].col_offset].strip():
            return i
    return -1


def _start(stmt: ast.stmt) -> int:
    """The first line of a statement."""
    decorators: list[ast.expr] = getattr(stmt, "decorator_list", [])
    return min([stmt.lineno, *(d.lineno for d in decorators)])


def _end(stmt: ast.stmt) -> int:
    return stmt.end_lineno or stmt.lineno
