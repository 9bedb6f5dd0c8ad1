"""Blank lines and comments above a statement, and what becomes of them when the statement moves or goes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
ABOUT_APEX = re.compile(
    r"apex|\bamp\b|fp16|half|mixed|nvidia|noinspection|apex_?amp|\b(un)?scal(ed?|ing)\b", re.IGNORECASE
)

# Also what the example that most programs began with says above initialize.
NAMES_APEX = re.compile(r"apex|\bamp accepts\b", re.IGNORECASE)

# What a comment says of Apex that is not so of what has taken its place, and where code comes from, which stays so.
STALE = re.compile(
    r"\bapex\b|\bamp\.(?:initialize|scale_loss|master_params)\b|delay_(?:allreduce|unscale)", re.IGNORECASE
)
ASIDE = re.compile(r"\((?:should|must|has to|needs to)\b[^()]*\)", re.IGNORECASE)  # goes by itself
CREDITS = re.compile(r"https?:|\b(?:adapted|borrowed|copied|copyright|from|license|modified|taken)\b", re.IGNORECASE)


def lead(node: Statement, lines: Sequence[cst.EmptyLine]) -> Statement:
    return node.with_changes(leading_lines=join_lines(lines, list(node.leading_lines)))


def apart(node: Statement) -> Statement:
    """A statement with two blank lines above it at least, as definitions of a module stand."""
    return lead(node, [cst.EmptyLine(indent=False)] * 2)


def follow(node: Statement, carried: Sequence[cst.EmptyLine]) -> Statement:
    """A statement below what is left of the lines above one that went: a comment in them is not cut off from it."""
    own = list(node.leading_lines)
    if carried and carried[-1].comment is not None and all(line.comment is None for line in own):
        return node.with_changes(leading_lines=carried)
    return lead(node, carried)


def unled(node: Statement) -> Statement:
    """A statement without the blank lines above it: it has become the first of its block."""
    lines = list(node.leading_lines)
    return node.with_changes(leading_lines=lines[_leading_blanks(lines) :])


def join_lines(first: Sequence[cst.EmptyLine], second: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Put two runs of blank and comment lines together without piling blank lines up."""
    if not first or not second:
        return [*first, *second]
    blanks_first = _trailing_blanks(first)
    blanks_second = _leading_blanks(second)
    keep = max(blanks_first, blanks_second)
    return [*first[: len(first) - blanks_first], *([cst.EmptyLine(indent=False)] * keep), *second[blanks_second:]]


def _trailing_blanks(lines: Sequence[cst.EmptyLine]) -> int:
    count = 0
    for line in reversed(lines):
        if line.comment is not None:
            break
        count += 1
    return count


def _leading_blanks(lines: Sequence[cst.EmptyLine]) -> int:
    return _trailing_blanks(list(reversed(lines)))


def surviving(lines: Sequence[cst.EmptyLine], about: re.Pattern[str] = ABOUT_APEX) -> list[cst.EmptyLine]:
    """What stays of the lines above a deleted statement: all but the comments directly above that were about Apex."""
    kept = list(lines)
    while (
        kept
        and kept[-1].comment is not None
        and any(about.search(x.comment.value) for x in _comment_run(kept) if x.comment is not None)
    ):
        run = _comment_run(kept)
        kept = kept[: len(kept) - len(run)]
        if _opens_frame(run):
            return [*kept, run[0]]
    return kept


def without_stale(node: Statement) -> Statement:
    """A changed statement without the comments directly above it that speak of Apex; a definition keeps those above it."""
    above = _comment_run(node.leading_lines)
    run = [x.comment.value for x in above if x.comment is not None]
    stale = any(STALE.search(ASIDE.sub("", line)) for line in run) and not any(map(CREDITS.search, run))
    if not stale or isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return node
    kept = list(node.leading_lines)[: len(node.leading_lines) - len(run)]
    return node.with_changes(leading_lines=[*kept, *above[: _opens_frame(above)]])


def attached(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """The comments directly above a statement, which go where it goes."""
    return _comment_run(lines)


def without_last_blanks(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Lines left over at the end of a block, which what follows is set apart from already."""
    kept = list(lines)
    while kept and kept[-1].comment is None:
        kept.pop()
    return kept


def _opens_frame(run: Sequence[cst.EmptyLine]) -> bool:
    """Whether comments begin with a ruled line, `########`, which the program closes further down."""
    rules = [x.comment is not None and not re.search(r"\w", x.comment.value) and len(x.comment.value) > 3 for x in run]
    return bool(rules) and rules[0] and not any(rules[1:])


def _comment_run(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    run: list[cst.EmptyLine] = []
    for line in reversed(lines):
        if line.comment is None:
            break
        run.insert(0, line)
    return run
