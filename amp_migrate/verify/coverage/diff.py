"""The diff of a migration, each line with whether it ran."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from amp_migrate.verify.coverage.places import Map, Source
from amp_migrate.verify.coverage.tally import Coverage

AROUND = 3  # unchanged lines shown around a change


@dataclass(frozen=True)
class Row:
    """A line of a diff: its `sign` (`@` begins a part), its numbers on both sides, and whether it `ran` (None where that
    is no question: comments, blank lines, what did not change)."""

    sign: Literal[" ", "-", "+", "@"]
    before: int | None
    after: int | None
    text: str
    ran: bool | None = None


@dataclass(frozen=True)
class FileDiff:
    """The changes of one file, called as in the migrated program where it is there."""

    name: str
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        return {"file": self.name, "rows": [[r.sign, r.before, r.after, r.text, r.ran] for r in self.rows]}


def changes(found: Map, coverage: Coverage) -> list[FileDiff]:
    """Of all changed files."""
    told = []
    for before, after in found.files:
        named = after or before
        assert named is not None
        told.append(FileDiff(named.path, tuple(_rows(before, after, coverage))))
    return told


def _rows(before: Source | None, after: Source | None, coverage: Coverage) -> Iterator[Row]:
    old, new = before.lines if before else [], after.lines if after else []
    ran = _lines(before, coverage), _lines(after, coverage)
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(AROUND):
        yield Row("@", group[0][1] + 1, group[0][3] + 1, "")
        for tag, i, j, k, m in group:
            if tag == "equal":
                for x, y in zip(range(i, j), range(k, m), strict=True):
                    yield Row(" ", x + 1, y + 1, old[x])
                continue
            for x in range(i, j):
                yield Row("-", x + 1, None, old[x], ran[0].get(x + 1))
            for y in range(k, m):
                yield Row("+", None, y + 1, new[y], ran[1].get(y + 1))


def _lines(source: Source | None, coverage: Coverage) -> dict[int, bool]:
    """By line number; a line of several statements has run when all of them have."""
    found: dict[int, bool] = {}
    for place in source.places if source is not None else ():
        for line in range(place.lines[0], place.lines[1] + 1):
            found[line] = found.get(line, True) and place.key in coverage.ran
    return found
